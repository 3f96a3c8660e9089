"""Every published way of storing keys and values that kvassay is compared with, a file a method.

Shared by them: `base` (checks, outliers, counting), `packing`, `codebooks`, `rotations`, `minmax`,
`rotated`. Found as `kvassay.codec(name, head_dim=...)`. Numpy, written to be read: what is
compared is what a method stores and what that costs in accuracy, never its speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvassay.vector_codec import VectorCodec

#: Classes by the names of their codecs, as module:class.
_CLASSES: Final = {
    "fp16": "fp16:FP16",
    "turbo": "turbo:Turbo",
    "centred": "centred:Centred",
    "turboquant_mse": "turboquant:TurboQuantMSE",
    "turboquant_prod": "turboquant:TurboQuantProd",
    "turboquant_prod_released": "turboquant:TurboQuantProdReleased",
    "fast_turboquant": "fast_turboquant:FastTurboQuant",
    "qjl": "qjl:QJL",
    "polarquant": "polarquant:PolarQuant",
    "drive": "eden:Drive",
    "eden_biased": "eden:EdenBiased",
    "eden_unbiased": "eden:EdenUnbiased",
    "rabitq": "rabitq:RaBitQ",
    "turbovec": "turbovec:TurboVec",
    "e8": "e8:E8",
    "pq": "pq:PQ",
    "kivi": "kivi:KIVI",
    "kvquant": "kvquant:KVQuant",
    "kvarn": "kvarn:KVarN",
    "quarot": "quarot:QuaRot",
    "spinquant": "spinquant:SpinQuant",
    "qserve": "qserve:QServe",
    "flexgen": "flexgen:FlexGen",
    "fp8_e4m3": "fp8:FP8E4M3",
    "fp8_e5m2": "fp8:FP8E5M2",
    "q8_0": "llama_cpp:Q8_0",
    "q5_1": "llama_cpp:Q5_1",
    "q5_0": "llama_cpp:Q5_0",
    "q4_1": "llama_cpp:Q4_1",
    "q4_0": "llama_cpp:Q4_0",
    "iq4_nl": "iq4_nl:IQ4NL",
}


class _Published(Mapping[str, "type[VectorCodec]"]):
    """The codecs by name; a class is imported when it is asked for, names alone need none."""

    def __getitem__(self, name: str) -> type[VectorCodec]:
        module, _, attribute = _CLASSES[name].partition(":")
        found: type[VectorCodec] = getattr(import_module(f"{__name__}.{module}"), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


published: Final = _Published()

__all__ = ["published"]
