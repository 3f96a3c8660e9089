"""Every published way of storing keys and values that kvassay is compared with, a file a method.

Shared by them: `base` (checks, outliers, counting), `packing`, `codebooks`, `rotations`, `minmax`,
`rotated`. Found as `kvassay.codec(name, head_dim=...)`. Numpy, written to be read: what is
compared is what a method stores and what that costs in accuracy, never its speed.
"""

from kvassay.vector_codec import Family

from .centred import Centred
from .e8 import E8
from .eden import Drive, EdenBiased, EdenUnbiased
from .fast_turboquant import FastTurboQuant
from .flexgen import FlexGen
from .fp8 import FP8E4M3, FP8E5M2
from .fp16 import FP16
from .iq4_nl import IQ4NL
from .kivi import KIVI
from .kvarn import KVarN
from .kvquant import KVQuant
from .llama_cpp import Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from .polarquant import PolarQuant
from .pq import PQ
from .qjl import QJL
from .qserve import QServe
from .quarot import QuaRot
from .rabitq import RaBitQ
from .spinquant import SpinQuant
from .turbo import Turbo
from .turboquant import TurboQuantMSE, TurboQuantProd, TurboQuantProdReleased
from .turbovec import TurboVec

family: Family = {
    "fp16": FP16,
    "turbo": Turbo,
    "centred": Centred,
    "turboquant_mse": TurboQuantMSE,
    "turboquant_prod": TurboQuantProd,
    "turboquant_prod_released": TurboQuantProdReleased,
    "fast_turboquant": FastTurboQuant,
    "qjl": QJL,
    "polarquant": PolarQuant,
    "drive": Drive,
    "eden_biased": EdenBiased,
    "eden_unbiased": EdenUnbiased,
    "rabitq": RaBitQ,
    "turbovec": TurboVec,
    "e8": E8,
    "pq": PQ,
    "kivi": KIVI,
    "kvquant": KVQuant,
    "kvarn": KVarN,
    "quarot": QuaRot,
    "spinquant": SpinQuant,
    "qserve": QServe,
    "flexgen": FlexGen,
    "fp8_e4m3": FP8E4M3,
    "fp8_e5m2": FP8E5M2,
    "q8_0": Q8_0,
    "q5_1": Q5_1,
    "q5_0": Q5_0,
    "q4_1": Q4_1,
    "q4_0": Q4_0,
    "iq4_nl": IQ4NL,
}

__all__ = ["family"]
