"""Compiles and runs the programs of docs/examples that use the operators from C and C++.

They are linked with the runtime that the package onnxruntime brings (1.32 does) and compiled with
the official headers, found as `abi.py` finds them. What they compute must be the reference's
bits. Exit status 77: something is missing, so nothing was checked.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from abi import NOT_RUN, find_headers
from onnx import TensorProto, helper

from kvassay.spec import Spec
from kvassay_backends.ort import backend as provider
from kvassay_backends.ort.graphs import DOMAIN, attributes
from kvassay_backends.reference import backend as reference

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
TOKENS: Final = 40
#: More than the 40 tokens need.
CACHE_BYTES: Final = 1 << 17
SPEC: Final = Spec(
    layers=1, kv_heads=2, query_heads=4, head_dim=64, page_tokens=16, keys="turbo:3.5", window=8
)  # fmt: skip
COMPILERS: Final = {".c": ("cc", "-std=c11"), ".cpp": ("c++", "-std=c++20")}


def write_model(path: Path) -> None:
    """Append and Attend of the spec."""
    given = attributes(SPEC.layer_specs[0], 0)
    names = ("cache", "keys", "values", "query", "cache_out", "output")
    kinds = {"cache": TensorProto.UINT8, "cache_out": TensorProto.UINT8}
    infos = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None) for n in names]
    nodes = [
        helper.make_node("Append", names[:3], ["cache_out"], "append", domain=DOMAIN, **given),
        helper.make_node(
            "Attend", ["cache_out", "query"], ["output"], "attend", domain=DOMAIN, **given
        ),
    ]
    graph = helper.make_graph(nodes, "layer", infos[:4], infos[4:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path.write_bytes(model.SerializeToString())


def numbers(count: int, factor: int, step: int, modulus: int, token: int) -> Any:
    """The inputs that the programs make up."""
    i = np.arange(count)
    return (((i * factor + token * step) % modulus - modulus // 2) / 32).astype(np.float32)


def expected() -> Any:
    """The last output of the reference."""
    with reference.load("scalar").prepare(SPEC) as cache:
        for t in range(TOKENS):
            k = numbers(128, 37, 11, 101, t).reshape(1, 2, 64)
            v = numbers(128, 53, 7, 97, t).reshape(1, 2, 64)
            cache.append(0, k, v)
        return cache.attend(0, numbers(256, 29, 13, 89, TOKENS - 1).reshape(4, 64)).ravel()


def run(source: Path, headers: Path, runtime: Path, library: Path, scratch: Path) -> str:
    """What one program gets wrong, empty if nothing."""
    program, model = scratch / source.stem, scratch / "layer.onnx"
    compiler, standard = COMPILERS[source.suffix]
    flags = (standard, "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", str(headers))
    command = (
        *(sys.executable, "-m", "ziglang", compiler, *flags),
        *(str(source), str(runtime), f"-Wl,-rpath,{scratch}"),
        *("-o", str(program)),
    )  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        return made.stderr
    arguments = (str(model), str(library), str(CACHE_BYTES))
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True)
    if done.returncode:
        return done.stderr or f"exit status {done.returncode}"
    found = np.array([float.fromhex(line) for line in done.stdout.split()], np.float32)
    return "" if found.tobytes() == expected().tobytes() else "other bits than the reference"


def main() -> int:
    """A line a program; 0 if all give the reference's bits."""
    folder = Path(onnxruntime.__file__).parent / "capi"
    runtime = next(iter(sorted(folder.glob("libonnxruntime.so.*"))), None)
    if runtime is None:
        print(f"examples not run: onnxruntime {onnxruntime.__version__} has no library for C")
        return NOT_RUN
    states = provider.variants()
    backend: Any = provider.load(next(name for name, state in states.items() if state.runs))
    status, ran = 0, 0
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        headers, where = find_headers(scratch)
        if headers is None:
            print(f"examples not run: {where}")
            return NOT_RUN
        write_model(scratch / "layer.onnx")
        (scratch / "libonnxruntime.so.1").symlink_to(runtime)  # the name that programs look for
        for source in sorted(EXAMPLES.glob("ort_cache.*")):
            wrong = run(source, headers, runtime, backend.library_path, scratch)
            print(f"{source.name}: {wrong or 'the bits of the reference'}")
            status, ran = status or bool(wrong), ran + 1
    return int(status or ran == 0)


if __name__ == "__main__":
    sys.exit(main())
