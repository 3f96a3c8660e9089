"""Where captured tensors come from: the identity record in the metadata of their file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from kvassay.errors import SpecError, TensorsError
from kvassay.spec import Rope

#: Version of the identity record and of the names and shapes of the tensors.
FORMAT: Final = 1
#: The metadata entry of the safetensors file that holds the record, as JSON text.
KEY: Final = "kvassay"


@dataclass(frozen=True)
class Provenance:
    """Which model, which text, which software.

    model: a name for people. model_digest, tokenizer_digest, template_digest: of the weights, the
    tokenizer and the chat template, "" where unknown. text_digest: hex sha256 of the token ids as
    little-endian uint32. layers: of the whole model. softmax_scale: what the model multiplies q.k
    with. rope: how q and k were rotated, None if they were not or if that is unknown. made_by:
    names and versions of the software.
    """

    model: str
    text_digest: str
    layers: int
    softmax_scale: float
    model_digest: str = ""
    tokenizer_digest: str = ""
    template_digest: str = ""
    rope: Rope | None = None
    made_by: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts = ("model", "text_digest", "model_digest", "tokenizer_digest", "template_digest")
        for name in texts:
            if not isinstance(getattr(self, name), str):
                raise TensorsError(f"identity record: {name} is {getattr(self, name)!r}, not text")
        if not self.model or not self.text_digest:
            raise TensorsError("identity record: model and text_digest must be given")
        if not _is_int(self.layers) or not 1 <= self.layers <= 65535:
            raise TensorsError(f"identity record: layers is {self.layers!r}, not 1 .. 65535")
        if not _is_number(self.softmax_scale) or not 2.0**-20 <= self.softmax_scale <= 2.0**20:
            raise TensorsError(
                f"identity record: softmax_scale is {self.softmax_scale!r}, not a number in "
                f"2^-20 .. 2^20"
            )
        made_by: Any = self.made_by
        if not isinstance(made_by, Mapping) or not all(
            isinstance(text, str) for pair in made_by.items() for text in pair
        ):
            raise TensorsError("identity record: made_by is no mapping from names to versions")

    def to_json(self) -> str:
        """The text that the file's metadata holds under `kvassay`."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """The inverse; raises TensorsError naming what is missing, unknown or wrong."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TensorsError(f"identity record: not JSON ({error})") from None
        if not isinstance(data, dict):
            raise TensorsError("identity record: not a JSON object")
        version = data.pop("format", None)
        if version != FORMAT:
            raise TensorsError(f"identity record: format {version!r}, this kvassay reads {FORMAT}")
        known = {item.name for item in fields(cls)}
        for name in data:
            if name not in known:
                raise TensorsError(f"identity record: no field {name!r}")
        for name in ("model", "text_digest", "layers", "softmax_scale"):
            if name not in data:
                raise TensorsError(f"identity record: {name} is missing")
        return cls(**{**data, "rope": _rope(data.get("rope"))})


def _rope(data: Any) -> Rope | None:
    if data is None:
        return None
    try:
        return Rope(**data)
    except (SpecError, TypeError) as error:
        raise TensorsError(f"identity record: rope: {error}") from None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and math.isfinite(value))
