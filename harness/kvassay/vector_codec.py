"""Codecs of single streams by name: the protocol, and the lookup behind `kvassay.codec`.

A codec here stores keys or values of one layer and gives them back; no cache, no window, no life
cycle. It is how methods are compared with each other, and with what a spec's codecs store.
Families of codecs are found through entry points of the group `kvassay.codecs`: each names a
mapping from codec names to classes.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final, Self

import numpy as np

from .errors import RegistryError, SpecError
from .plugins import CODECS, loaded
from .protocol import FloatArray
from .suggest import did_you_mean

ROLES: Final = ("key", "value")
MAX_HEAD_DIM: Final = 256

#: Prefix of the parts that a codec learnt from data: shared by all pages of a layer.
FITTED: Final = "fitted"
#: The part that holds tokens which no group took in, as fp16.
RESIDUAL: Final = "residual"


#: numpy's own treatment of what floats cannot hold: a host's `np.seterr` is no matter of a codec.
_NUMPYS_OWN: Final = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")


def _unmoved(cls: type, *names: str) -> None:
    """Have methods that a class defines compute under numpy's own error state."""
    for name in names:
        if inspect.isfunction(method := vars(cls).get(name)):
            setattr(cls, name, _NUMPYS_OWN(method))


class Encoded(ABC):
    """What a codec holds of one array of vectors."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _unmoved(cls, "decode", "score")

    #: Shape of the array that was encoded: (vectors, head_dim) or (tokens, heads, head_dim).
    shape: tuple[int, ...]

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, int]:
        """Bytes of every array held, by name."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held, what was fitted to data included."""
        return sum(self.parts.values())

    @property
    def values(self) -> int:
        """Numbers that were encoded."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def page_bits(self) -> float:
        """Bits a value of what a sealed page holds: fitted parts and the fp16 residual left out."""
        residual = self.parts.get(RESIDUAL, 0)
        sealed = self.values - residual // 2
        fitted = sum(size for name, size in self.parts.items() if name.startswith(FITTED))
        return 8 * (self.nbytes - fitted - residual) / sealed if sealed else 16.0

    @property
    def all_in_bits(self) -> float:
        """Bits a value of everything held."""
        return 8 * self.nbytes / self.values

    @abstractmethod
    def decode(self) -> FloatArray:
        """The vectors as the codec gives them back, float32 of `shape`."""

    @abstractmethod
    def score(self, q: FloatArray) -> FloatArray:
        """Estimated products of queries with every vector, without a softmax scale, float32.

        Of (vectors, head_dim): q (head_dim,) gives (vectors,), q (n, head_dim) gives (n, vectors).
        Of (tokens, heads, head_dim): q (heads, head_dim) gives (heads, tokens), q (n, heads,
        head_dim) gives (n, heads, tokens). Raises InputError for another shape or dtype, NaN and
        infinity.
        """


class VectorCodec(ABC):
    """One method of storing keys or values. Made by `kvassay.codec`; immutable."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _unmoved(cls, "encode", "fit")

    #: Where the method and its formulas are published.
    paper: ClassVar[str]
    #: What one scale is for.
    granularity: ClassVar[str]
    #: What the paper says of its accuracy.
    claim: ClassVar[str]
    #: What became of that claim here (docs/add-a-backend.md, how claims are labelled).
    label: ClassVar[str] = "claimed by its authors"
    #: The rates that `bits` may have, the method's own default first.
    rates: ClassVar[tuple[float, ...]]

    name: str
    bits: float
    head_dim: int
    role: str

    @abstractmethod
    def encode(self, x: FloatArray) -> Encoded:
        """Store x, float32 (vectors, head_dim) or (tokens, heads, head_dim).

        A codec that learns from data and was not fitted learns from x. Raises InputError for
        another shape or dtype, and for NaN, infinity or magnitudes beyond fp16, naming token,
        head and channel.
        """

    @abstractmethod
    def fit(self, x: FloatArray) -> Self:
        """A codec that has learnt from x (shapes as in `encode`); itself where nothing is learnt.

        What it learnt is held, and counted, by all that it encodes.
        """


Family = Mapping[str, type[VectorCodec]]
_registered: dict[str, type[VectorCodec]] = {}


def register_codecs(family: Family) -> None:
    """Add codecs to this process; raises RegistryError on a name that exists already."""
    known = codecs()
    for name, cls in family.items():
        if name in known:
            raise RegistryError(f"a codec named {name!r} exists already; choose another name")
        _check(name, cls)
    _registered.update(family)


def codecs() -> dict[str, type[VectorCodec]]:
    """All codec classes by name, in the order in which their families list them."""
    return {**_installed(), **_registered}


@cache
def _installed() -> dict[str, type[VectorCodec]]:
    """Codecs of entry points; read once, since the files behind them are not read for nothing."""
    found: dict[str, type[VectorCodec]] = {}
    for _, family in loaded(CODECS):
        for name, cls in family.items():
            _check(name, cls)
            if name in found:
                raise RegistryError(f"two packages offer a codec named {name!r}; uninstall one")
            found[name] = cls
    return found


def codec(
    name: str,
    *,
    head_dim: int,
    bits: float | None = None,
    role: str = "key",
    **params: Any,
) -> VectorCodec:
    """The codec `name` for vectors of `head_dim` channels.

    `bits` are those of the codes alone; None takes the method's own default. `role` is "key" or
    "value": some methods store the two differently. `params` are the codec's own. Raises SpecError
    for an unknown name, rate, role or parameter, a head dim that the method cannot store, and
    UnavailableError where a package it needs is missing.
    """
    known = codecs()
    if name not in known:
        raise SpecError(f"codec: no codec {name!r}{did_you_mean(str(name), known)}")
    cls = known[name]
    accepted = parameters(cls)
    for param in params:
        if param not in accepted:
            hint = did_you_mean(param, accepted)
            raise SpecError(f"codec {name!r}: no parameter {param!r}{hint}")
    if (
        isinstance(head_dim, bool)
        or not isinstance(head_dim, int)
        or not (16 <= head_dim <= MAX_HEAD_DIM and head_dim % 16 == 0)
    ):
        raise SpecError(
            f"codec {name!r}: head_dim {head_dim!r} is not a multiple of 16 from 16 to "
            f"{MAX_HEAD_DIM}; pad keys and queries in the model"
        )
    if role not in ROLES:
        raise SpecError(f"codec {name!r}: role {role!r} is not one of {', '.join(ROLES)}")
    bits = cls.rates[0] if bits is None else bits
    if isinstance(bits, bool) or bits not in cls.rates:
        rates = ", ".join(f"{rate:g}" for rate in sorted(cls.rates))
        raise SpecError(f"codec {name!r}: bits {bits!r} is not one of its rates: {rates}")
    made: Any = cls
    made = made(bits=float(bits), head_dim=head_dim, role=role, **params)
    made.name = name
    return made  # type: ignore[no-any-return]


def parameters(cls: type[VectorCodec]) -> dict[str, Any]:
    """The codec's own parameters with their defaults, those of its base classes last."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if not inspect.isfunction(init := vars(base).get("__init__")):
            continue
        for name, parameter in inspect.signature(init).parameters.items():
            if parameter.default is not parameter.empty:
                found.setdefault(name, parameter.default)
        if not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(init).parameters.values()):
            break  # hands nothing on to its bases
    return found


def _check(name: str, cls: Any) -> None:
    if not (inspect.isclass(cls) and issubclass(cls, VectorCodec) and cls.rates):
        raise RegistryError(f"codec {name!r}: {cls!r} is not a VectorCodec class with rates")
