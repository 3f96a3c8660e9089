"""A profile as data: of which model it is, what its caches store, what it promises."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from ..errors import IdentityError, SpecError
from ..presets import combined
from ..spec import Identity, Spec
from ..suggest import did_you_mean

#: Version of the file.
FORMAT: Final = 1
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)?")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
#: Fields of a spec that a profile holds beside the shape, those of sliding layers among them.
DECIDES: Final = (
    *("keys", "values", "key_centre", "value_centre", "scale", "rounds"),
    *("window", "sinks", "page_tokens", "span", "softmax_scale", "layer_overrides"),
)
#: The domain of each number of a promise: least and most.
_DOMAINS: Final = {
    "positions": (1, 2**53),
    "tokens": (1, 2**53),
    "page_bits": (1, 32),
    "all_in_bits": (1, 32),
    "perplexity_rise": (-1, 1e9),
    "top1": (0, 1),
}


@dataclass(frozen=True)
class ModelIdentity:
    """The model of a profile. name: for people; digest: hex sha256 of its GGUF file, or of the
    weights of a model that has none; norms: of its norm weights (`kvassay.models.norms`), which
    files of other formats and of other quantization share."""

    name: str
    digest: str
    norms: str
    layers: int
    kv_heads: int
    query_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        _text("model.name", self.name)
        for name in ("digest", "norms"):
            if not _DIGEST.fullmatch(_text(f"model.{name}", getattr(self, name))):
                raise SpecError(f"profile: model.{name} is no sha256 in hex")

    @property
    def shape(self) -> dict[str, int]:
        """Fields of a spec."""
        names = ("layers", "kv_heads", "query_heads", "head_dim")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Promise:
    """What a profile does on texts that had no say in it, over all positions whose query meets a
    sealed page.

    texts: names; tokens: of each. kl: mean next-token KL in nats with its 95 % interval, by
    resampling blocks of positions; worst: the largest mean of a text. perplexity_rise: relative.
    top1: share of positions whose likeliest token is the same.
    """

    texts: tuple[str, ...]
    tokens: int
    positions: int
    page_bits: float
    all_in_bits: float
    kl: float
    kl_low: float
    kl_high: float
    worst: float
    perplexity_rise: float
    top1: float

    def __post_init__(self) -> None:
        if not isinstance(self.texts, (list, tuple)) or not self.texts:
            raise SpecError(f"profile: promise.texts is {self.texts!r}, not a list of names")
        for one in self.texts:
            _text("promise.texts", one)
        object.__setattr__(self, "texts", tuple(self.texts))
        for item in fields(self)[1:]:
            low, high = _DOMAINS.get(item.name, (0, 1e9))
            _number(f"promise.{item.name}", getattr(self, item.name), low, high, item.type == "int")
        if not self.kl_low <= self.kl <= self.kl_high or self.kl > self.worst:
            raise SpecError("profile: promise.kl is outside of its interval, or above its worst")


@dataclass(frozen=True)
class Profile:
    """What the caches of one model store. Every field is checked: SpecError names what is wrong.

    name: short, lower case, as `smollm2-135m/3`. target: what was asked of the fit. fields: of a
    spec, those a model does not decide. provenance: texts and software of the fit, for people.
    """

    name: str
    target: str
    model: ModelIdentity
    fields: Mapping[str, Any]
    promise: Promise
    provenance: Mapping[str, str]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(_text("name", self.name)):
            raise SpecError(f"profile: name {self.name!r}; lower case as in smollm2-135m/3")
        _text("target", self.target)
        told: Any = self.provenance
        if not isinstance(told, Mapping):
            raise SpecError("profile: provenance is no object of texts")
        for name, text in told.items():
            _text(f"provenance.{name}", text)
        if not isinstance(self.fields, Mapping):
            raise SpecError("profile: fields is no object")
        for name in self.fields:
            if name not in DECIDES:
                hint = did_you_mean(str(name), DECIDES)
                raise SpecError(f"profile: fields.{name} is not a profile's to decide{hint}")
        try:
            self.spec()
        except SpecError as error:
            raise SpecError(f"profile {self.name!r}: {error}") from None

    def spec(self, **given: Any) -> Spec:
        """The Spec of a cache of this model, its identity the model's digest.

        given: more fields, of the model's shape too, which must be this model's: IdentityError
        names both models otherwise.
        """
        for name, value in self.model.shape.items():
            if given.get(name, value) != value:
                raise self._other(f"one with {name} {given[name]}, not {value}")
        identity = given.pop("identity", None) or Identity(model=self.model.digest)
        model = identity["model"] if isinstance(identity, Mapping) else identity.model
        if model != self.model.digest:
            raise self._other(f"one of digest {model[:16] or 'unknown'}")
        return combined(self.fields, {**self.model.shape, **given, "identity": identity})

    def on(self, **shape: Any) -> Spec:
        """The Spec in any shape, as a gate's synthetic inputs have it: layers that the shape lacks
        are left out. Where the shape is this model's, an identity must be too."""
        if shape.get("identity") is not None and self.model.shape.items() <= shape.items():
            return self.spec(**shape)
        overrides = self.fields.get("layer_overrides", {})
        kept = {n: one for n, one in overrides.items() if int(n) < shape.get("layers", 0)}
        return combined({**self.fields, "layer_overrides": kept}, shape)

    def check_model(self, name: str, digest: str) -> None:
        """Raises IdentityError naming both models unless the digest is that of the model's file or
        of its norms."""
        if digest not in (self.model.digest, self.model.norms):
            raise self._other(f"{name}, digest {digest[:16]}")

    def _other(self, model: str) -> IdentityError:
        mine = f"{self.model.name}, digest {self.model.digest[:16]}"
        return IdentityError(
            f"profile {self.name!r} is of {mine}; the model here is {model}: make its own with "
            "kvassay fit, or take the preset turbo",
            field="model",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads back."""
        plain = {"format": FORMAT, **asdict(self)}
        plain["promise"]["texts"] = list(self.promise.texts)
        overrides = plain["fields"].get("layer_overrides", {})
        plain["fields"] = {
            **plain["fields"],
            "layer_overrides": {str(layer): dict(one) for layer, one in overrides.items()},
        }
        return plain

    @classmethod
    def from_dict(cls, data: Any) -> Profile:
        """A profile from data of any kind; SpecError for anything but one."""
        top = _fields_of("profile", data, {"format", *(item.name for item in fields(cls))})
        if top.pop("format") != FORMAT:
            raise SpecError(f"profile: format is {data['format']!r}, this version reads {FORMAT}")
        for name, kind in (("model", ModelIdentity), ("promise", Promise)):
            inner = {item.name for item in fields(kind)}
            top[name] = kind(**_fields_of(f"profile: {name}", top[name], inner))
        return cls(**top)


def _fields_of(what: str, data: Any, names: set[str]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise SpecError(f"{what} is no object")
    for name in sorted(names - data.keys()):
        raise SpecError(f"{what}: {name} is missing")
    for name in data.keys() - names:
        raise SpecError(f"{what}: no field {name!r}{did_you_mean(name, names)}")
    return dict(data)


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 4096 or not value.isprintable():
        raise SpecError(f"profile: {where} is no short line of text")
    return value


def _number(where: str, value: Any, low: float, high: float, whole: bool) -> None:
    kind = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise SpecError(f"profile: {where} is {value!r}, not a {'whole ' * whole}number")
    if not (math.isfinite(value) and low <= value <= high):
        raise SpecError(f"profile: {where} is {value!r}, outside {low:g} .. {high:g}")
