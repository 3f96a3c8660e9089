"""The immutable description of a cache: shape, codecs, centring, window, sinks, span."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from numbers import Integral
from types import MappingProxyType
from typing import Any, Final

from .errors import SpecError
from .streams import FP16, Codec, parse_codec
from .suggest import did_you_mean

MAX_HEAD_DIM: Final = 576
MAX_PAGE_TOKENS: Final = 1024
#: Tokens that a layer may hold: positions of tokens and numbers of pages are stored in 32 bits.
MAX_TOKENS: Final = 2**32 - 1
KEY_CENTRES: Final = ("none", "frozen", "page")
VALUE_CENTRES: Final = ("none", "frozen")
SCALE_KINDS: Final = ("u8", "u8log", "fp16")


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of the keys a cache holds: part of the identity, never applied here."""

    base: float
    dims: int
    order: str = "interleaved"
    scaling: str = "none"

    def __post_init__(self) -> None:
        if isinstance(self.base, bool) or not isinstance(self.base, (int, float)):
            raise SpecError(f"rope.base: {self.base!r} is not a number")
        if isinstance(self.dims, bool) or not isinstance(self.dims, int):
            raise SpecError(f"rope.dims: {self.dims!r} is not an integer")
        _check_texts("rope", {"order": self.order, "scaling": self.scaling})


@dataclass(frozen=True)
class Identity:
    """What a cache belongs to. Any text; equal caches have equal texts, empty means not given."""

    model: str = ""
    tokenizer: str = ""
    template: str = ""
    adapter: str = ""
    tokens: str = ""
    runtime: str = ""

    def __post_init__(self) -> None:
        _check_texts("identity", asdict(self))

    @staticmethod
    def _hash(*parts: str) -> int:
        if not any(parts):
            return 0
        digest = hashlib.sha256("\0".join(parts).encode()).digest()
        return int.from_bytes(digest[:8], "little")

    @property
    def model_hash(self) -> int:
        """64-bit hash of model and adapter for page headers, 0 if neither is given."""
        return self._hash(self.model, self.adapter)

    @property
    def tokenizer_hash(self) -> int:
        """64-bit hash of tokenizer and chat template, 0 if neither is given."""
        return self._hash(self.tokenizer, self.template)

    @property
    def runtime_hash(self) -> int:
        """64-bit hash of the runtime's name and version, 0 if not given."""
        return self._hash(self.runtime)


@dataclass(frozen=True)
class LayerSpec:
    """One layer's spec after overrides: what a backend executes. `span` 0 means none."""

    kv_heads: int
    query_heads: int
    head_dim: int
    page_tokens: int
    keys: Codec
    values: Codec
    key_centre: str
    value_centre: str
    scale: str
    rounds: int
    window: int
    sinks: int
    span: int
    softmax_scale: float
    seed: int

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.query_heads // self.kv_heads

    @property
    def rotated(self) -> bool:
        """Whether a stream goes through the transform."""
        return self.keys.rotated or self.values.rotated

    def sealed(self, length: int) -> int:
        """Pages sealed after `length` tokens (numeric contract, section 2)."""
        return max(0, (length - self.sinks - self.window) // self.page_tokens)


_OVERRIDABLE: Final = frozenset(
    {
        "keys",
        "values",
        "window",
        "sinks",
        "span",
        "page_tokens",
        "key_centre",
        "value_centre",
        "scale",
    }
)


@dataclass(frozen=True)
class Spec:
    """What a cache stores and how.

    Shapes: keys and values of a layer are (tokens, kv_heads, head_dim), queries
    (query_heads, head_dim). `window` and `sinks` count tokens kept as fp16; `span` is how many of
    the newest
    tokens may be attended at all (None: all). `softmax_scale` None is 1/sqrt(head_dim).
    `layer_overrides` maps a layer to the fields that differ there, for instance
    `{0: {"keys": "fp16", "values": "fp16"}}`. Raises SpecError naming the field.
    """

    layers: int
    kv_heads: int
    query_heads: int
    head_dim: int
    keys: str = "fp16"
    values: str = "fp16"
    window: int = 0
    sinks: int = 0
    span: int | None = None
    page_tokens: int = 64
    key_centre: str = "none"
    value_centre: str = "none"
    scale: str = "u8"
    rounds: int = 2
    seed: int = 0
    softmax_scale: float | None = None
    rope: Rope | None = None
    layer_overrides: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    identity: Identity | None = None

    def __post_init__(self) -> None:
        if isinstance(self.identity, Mapping):
            object.__setattr__(self, "identity", _build(Identity, "identity", self.identity))
        if isinstance(self.rope, Mapping):
            object.__setattr__(self, "rope", _build(Rope, "rope", self.rope))
        for item in fields(self):  # integers of numpy have no place in the identity text
            object.__setattr__(self, item.name, _plain(getattr(self, item.name)))
        self._check_kinds()
        self._check_shape()
        _check_policy(self._policy(), "")
        frozen = {
            layer: MappingProxyType(self._checked_override(layer, override))
            for layer, override in sorted(self.layer_overrides.items())
        }
        object.__setattr__(self, "layer_overrides", MappingProxyType(frozen))

    def __hash__(self) -> int:
        return hash(self.identity_text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_spec, (self.to_dict(),)

    def _check_kinds(self) -> None:
        for name, value, kind in (("identity", self.identity, Identity), ("rope", self.rope, Rope)):
            if value is not None and not isinstance(value, kind):
                raise SpecError(
                    f"{name}: {value!r} is neither {kind.__name__} nor a mapping of its fields"
                )
        overrides: Any = self.layer_overrides
        if not isinstance(overrides, Mapping) or not all(
            isinstance(override, Mapping) for override in overrides.values()
        ):
            raise SpecError(
                f"layer_overrides: {overrides!r} is not a mapping from layers to mappings of fields"
            )

    def _check_shape(self) -> None:
        for name, low, high in (
            ("layers", 1, 65535),
            ("kv_heads", 1, 65535),
            ("query_heads", 1, 65535),
            ("head_dim", 16, MAX_HEAD_DIM),
            ("seed", 0, 2**64 - 1),
        ):
            _check_int(name, getattr(self, name), low, high)
        if self.head_dim % 16:
            raise SpecError(
                f"head_dim: {self.head_dim} is not a multiple of 16; kvassay stores exactly "
                f"head_dim coordinates in stripes of 16; pad keys, values and queries in the model"
            )
        if self.query_heads % self.kv_heads:
            raise SpecError(
                f"query_heads: {self.query_heads} is not a multiple of kv_heads {self.kv_heads}"
            )
        if isinstance(self.rounds, bool) or self.rounds not in (1, 2):
            raise SpecError(f"rounds: {self.rounds!r}; the transform has 1 or 2 rounds")
        if self.softmax_scale is not None:
            scale = self.softmax_scale
            if isinstance(scale, bool) or not isinstance(scale, (int, float)):
                raise SpecError(f"softmax_scale: {scale!r} is not a number")
            if not (math.isfinite(scale) and 2.0**-20 <= scale <= 2.0**20):
                raise SpecError(f"softmax_scale: {scale!r} is outside 2^-20 .. 2^20")

    def _checked_override(self, layer: Any, override: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < self.layers:
            raise SpecError(f"layer_overrides: no layer {layer!r} among {self.layers}")
        for name in override:
            if name not in _OVERRIDABLE:
                hint = did_you_mean(str(name), _OVERRIDABLE)
                raise SpecError(f"layer_overrides[{layer}]: cannot override {name!r}{hint}")
        _check_policy(_merged(self._policy(), override), f"layer_overrides[{layer}].")
        return {name: _plain(value) for name, value in override.items()}

    def _policy(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in sorted(_OVERRIDABLE)}

    @property
    def effective_softmax_scale(self) -> float:
        """The softmax scale rounded to float32, as the numeric contract uses it."""
        scale = self.softmax_scale
        exact = 1.0 / math.sqrt(self.head_dim) if scale is None else scale
        return float(struct.unpack("<f", struct.pack("<f", exact))[0])

    @cached_property
    def layer_specs(self) -> tuple[LayerSpec, ...]:
        """One resolved LayerSpec a layer."""
        return tuple(self.layer(index) for index in range(self.layers))

    def layer(self, index: int) -> LayerSpec:
        """The resolved spec of one layer."""
        policy = _merged(self._policy(), self.layer_overrides.get(index, {}))
        policy["keys"] = parse_codec(policy["keys"], "keys")
        policy["values"] = parse_codec(policy["values"], "values")
        policy["span"] = policy["span"] or 0
        return LayerSpec(
            kv_heads=self.kv_heads,
            query_heads=self.query_heads,
            head_dim=self.head_dim,
            rounds=self.rounds,
            softmax_scale=self.effective_softmax_scale,
            seed=self.seed,
            **policy,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `Spec.from_dict` reads back."""
        out: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, (Rope, Identity)):
                value = asdict(value)
            elif item.name == "layer_overrides":
                value = {str(layer): dict(override) for layer, override in value.items()}
            out[item.name] = value
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spec:
        """The inverse of `to_dict`; raises SpecError on unknown fields or values."""
        plain = dict(data)
        overrides = plain.get("layer_overrides") or {}
        try:
            plain["layer_overrides"] = {int(layer): value for layer, value in overrides.items()}
        except (AttributeError, TypeError, ValueError):
            raise SpecError("layer_overrides: not a mapping from layer numbers") from None
        spec: Spec = _build(cls, "spec", plain)
        return spec

    @cached_property
    def identity_text(self) -> str:
        """Canonical JSON of everything that identifies the cache (sorted keys, no spaces)."""
        data = self.to_dict()
        data["softmax_scale"] = self.effective_softmax_scale
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @property
    def digest(self) -> str:
        """Short stable name of the spec: the first 12 hex digits of SHA-256 of `identity_text`."""
        return hashlib.sha256(self.identity_text.encode()).hexdigest()[:12]


def _build(cls: Any, what: str, data: Mapping[str, Any]) -> Any:
    names = {item.name for item in fields(cls)}
    for name in data:
        if name not in names:
            raise SpecError(f"{what}: no field {name!r}{did_you_mean(str(name), names)}")
    needed = [item.name for item in fields(cls) if item.default is item.default_factory is MISSING]
    if missing := [name for name in needed if name not in data]:
        raise SpecError(f"{what}: {', '.join(missing)} must be given")
    try:
        return cls(**data)
    except TypeError as error:
        raise SpecError(f"{what}: {error}") from None


def _restore_spec(data: dict[str, Any]) -> Spec:
    return Spec.from_dict(data)


def _merged(policy: dict[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """A layer overridden to fp16 drops the centring of the codec it replaces."""
    merged = {**policy, **override}
    for stream, centre in (("keys", "key_centre"), ("values", "value_centre")):
        if override.get(stream) == FP16.name and centre not in override:
            merged[centre] = "none"
    return merged


def _plain(value: Any) -> Any:
    """An integer of numpy, say, as Python's own; True and False are none."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return int(value) if whole else value


def _check_texts(what: str, texts: Mapping[str, Any]) -> None:
    for name, text in texts.items():
        if not isinstance(text, str):
            raise SpecError(f"{what}.{name}: {text!r} is not text")


def _check_int(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SpecError(f"{name}: {value!r} is not an integer")
    if not low <= int(value) <= high:
        raise SpecError(f"{name}: {value} is outside {low} .. {high}")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SpecError(
            f"{name}: {value!r} is not one of {', '.join(choices)}"
            f"{did_you_mean(str(value), choices)}"
        )


def _check_policy(policy: Mapping[str, Any], where: str) -> None:
    """The fields that a layer may override."""
    for stream, centre in (("keys", "key_centre"), ("values", "value_centre")):
        codec = parse_codec(policy[stream], stream, where)
        if codec == FP16 and policy[centre] != "none":
            raise SpecError(
                f"{where}{centre}: {policy[centre]!r} has no meaning for fp16 {stream}; use 'none'"
            )
    _check_int(f"{where}window", policy["window"], 0, 2**31 - 1)
    _check_int(f"{where}sinks", policy["sinks"], 0, 2**31 - 1)
    if policy["span"] is not None:
        _check_int(f"{where}span", policy["span"], 1, 2**31 - 1)
    _check_int(f"{where}page_tokens", policy["page_tokens"], 16, MAX_PAGE_TOKENS)
    if policy["page_tokens"] % 16:
        raise SpecError(f"{where}page_tokens: {policy['page_tokens']} is not a multiple of 16")
    _check_choice(f"{where}key_centre", policy["key_centre"], KEY_CENTRES)
    _check_choice(f"{where}value_centre", policy["value_centre"], VALUE_CENTRES)
    _check_choice(f"{where}scale", policy["scale"], SCALE_KINDS)
