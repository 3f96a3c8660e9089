"""The instruction sets of every machine, listed once: for the build and for who asks what runs.

This module imports nothing of the package: the build recipe loads it by its path.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Isa:
    """An instruction set: what its kernels are compiled with, and whose files it takes."""

    flags: tuple[str, ...] = ()
    """What it adds to the machine's baseline: in its kernels, and in a WebAssembly module, which
    has one instruction set, in every file."""
    parents: tuple[str, ...] = ()
    """Nearest first. Where a folder of kernels has no file of this set, the first parent's that is
    there is compiled for it."""
    kernels: tuple[str, ...] = ()
    """What the kernels alone are given beside `flags`."""


_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mf16c", "-mpclmul")

#: By machine, from slowest to fastest, as `src/kernels/variants.h` has them.
ISAS: Mapping[str, Mapping[str, Isa]] = MappingProxyType(
    {
        "x86_64": {
            "scalar": Isa(),
            "avx2": Isa(("-mavx2", "-mf16c", "-mpclmul", "-mno-fma")),
            "avx512": Isa(_AVX512, ("avx2",)),
            "avx512vnni": Isa((*_AVX512, "-mavx512vbmi", "-mavx512vnni"), ("avx512", "avx2")),
        },
        "aarch64": {
            "scalar": Isa(),
            "neon": Isa(),
            "neondot": Isa(("-mcpu=generic+dotprod+crc",), ("neon",)),
        },
        "wasm32": {
            "scalar": Isa(),
            "simd128": Isa(("-msimd128",)),
            # Kernels alone: given leave, the compiler makes relaxed minima out of comparisons
            # anywhere.
            "relaxed": Isa(("-msimd128",), ("simd128",), ("-mrelaxed-simd",)),
        },
    }
)
