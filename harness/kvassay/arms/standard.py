"""Arms that `kvassay arms` measures unless told otherwise, and those that vary one thing at a
time."""

from __future__ import annotations

from typing import Final

_KEY_BITS: Final = (2.5, 2.5, 3, 3, 3.5, 3.5, 4, 4)
_VALUE_BITS: Final = (2, 2.5, 2.5, 3, 3, 3.5, 3.5, 4)

#: Ours, as caches store it and as they could, at several rates; others at the same bytes.
STANDARD: Final = (
    *(
        f"turbo:{keys},centre=rope,choice=true/turbo:{values}"
        for keys, values in zip(_KEY_BITS, _VALUE_BITS, strict=True)
    ),
    "centred:5,centre=rope,choice=true/turbo:4",
    *(f"turbo:{keys}/turbo:{values}" for keys, values in zip(_KEY_BITS, _VALUE_BITS, strict=True)),
    *(f"kivi:{bits}" for bits in (2, 3, 4)),
    *(f"kvarn:{bits},tile=64" for bits in (2, 3, 4)),
    *(f"turboquant_mse:{bits}" for bits in (2, 3, 4)),
    "q4_0",
    "q4_1",
    "iq4_nl",
    "q5_0",
)

_TURBO: Final = "turbo:3.5/turbo:3"

#: What is varied, and the arms that vary it: all else is the preset `turbo` with a window of 32.
ABLATIONS: Final = {
    "window": tuple(f"{_TURBO} window={n}" for n in (32, 64, 128, 256)),
    "sinks": tuple(f"{_TURBO} sinks={n}" for n in (0, 1, 4, 16)),
    "protected layers": (
        _TURBO,
        f"{_TURBO} 0=fp16",
        f"{_TURBO} 0,1=fp16",
        f"{_TURBO} -1=fp16",
        f"{_TURBO} 0,1,-1=fp16",
    ),
    "key centring": tuple(
        f"turbo:3.5,centre={centre}/turbo:3" for centre in ("page", "frozen", "none")
    ),
    "value centring": tuple(
        f"turbo:3.5/turbo:3,centre={centre}" for centre in ("none", "frozen", "page")
    ),
    "a bit a token": (
        _TURBO,
        "turbo:3.5,choice=true/turbo:3",
        "turbo:3.5/turbo:3,centre=frozen",
        "turbo:3.5/turbo:3,centre=frozen,choice=true",
        "turbo:3.5,centre=rope,choice=true/turbo:3",
        "turbo:3.5,centre=rope,choice=true/turbo:3,centre=frozen,choice=true",
    ),
    "rounds": tuple(f"turbo:3.5,rounds={n}/turbo:3,rounds={n}" for n in (2, 1)),
    "scale": tuple(
        f"turbo:3.5,scale={kind}/turbo:3,scale={kind}" for kind in ("u8", "u8log", "fp16")
    ),
    "sign projection": (
        "preset:turbo window=32",
        "preset:turbo window=32 keys=turbo:3",
        "preset:turbo-qjl window=32",
        "preset:turbo window=32 keys=turbo:4",
    ),
    "page": tuple(f"turbo:3.5,page={n}/turbo:3,page={n} page={n}" for n in (16, 32, 64, 128)),
}
