"""The JavaScript host: its tests under Node, and what it must have in common with Python and C."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvassay
from kvassay.assets.web import web_assets
from kvassay.presets import PRESETS
from kvassay.protocol import FloatArray

ASSETS = web_assets()["wasm"]
TESTS = Path(__file__).resolve().parent / "js_host"
INCLUDE = Path(__file__).resolve().parents[3] / "backends" / "src" / "include"
NODE = shutil.which(os.environ.get("KVASSAY_NODE", "node"))
REQUIRED = os.environ.get("KVASSAY_REQUIRE_ENGINES") == "1"
RELAXED = "--experimental-wasm-relaxed-simd"

if NODE is None and not REQUIRED:
    pytest.skip("no node: the JavaScript host is not tested", allow_module_level=True)


def node(*arguments: str, text: str | None = None) -> str:
    """Run Node with the host and the modules of this checkout; its standard output."""
    assert NODE is not None, "KVASSAY_REQUIRE_ENGINES is set, and there is no node"
    environment = {
        **os.environ,
        "KVASSAY_JS_HOST": str(ASSETS.host),
        "KVASSAY_JS_MODULES": str(ASSETS.folder),
    }
    done = subprocess.run(
        [NODE, *arguments], input=text, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def evaluate(expression: str, name: str = "kvassay.mjs", data: Any = None) -> Any:
    """An expression over `host`, a module of the host, and `data`."""
    script = (
        f"const host = await import({json.dumps((ASSETS.host / name).as_uri())});"
        f"const data = {json.dumps(data)};"
        f"console.log(JSON.stringify({expression}));"
    )
    return json.loads(node("--input-type=module", text=script))


def major() -> int:
    return int(node("--version").removeprefix("v").partition(".")[0])


@pytest.mark.parametrize("path", sorted(TESTS.glob("*.test.mjs")), ids=lambda path: path.stem)
def test_host(path: Path) -> None:
    out = node("--test", "--test-reporter=tap", str(path))
    passed, failed = (
        int(re.findall(rf"^# {word} (\d+)$", out, re.M)[0]) for word in ("pass", "fail")
    )
    assert failed == 0, out
    assert passed >= 5, "nothing ran"
    assert "# skipped 0" in out


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((), "unsupported"), ((RELAXED,), "broken"), ((RELAXED, "--no-liftoff"), "ready")],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_relaxed_of_node_20_is_known_for_what_it_is(flags: tuple[str, ...], expected: str) -> None:
    """Its first compiler computes the relaxed dot wrongly; its second one does not."""
    if major() != 20:
        pytest.skip(f"about Node 20, this is {major()}")
    found = json.loads(node(*flags, str(TESTS / "features.mjs")))
    assert found["simd128"] == {"status": "ready", "reason": ""}
    assert found["relaxed"]["status"] == expected
    assert bool(found["relaxed"]["reason"]) == (expected != "ready")


def pinned(seed: int, count: int) -> FloatArray:
    """The inputs of the self-test, written again."""
    out, x = [], seed
    for _ in range(count):
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        x ^= x << 5 & 0xFFFFFFFF
        out.append((x % 4001 - 2000) / 1024)
    return np.array(out, np.float32)


def test_the_self_test_expects_what_the_reference_gives() -> None:
    content = evaluate("[host.SPECS, host.EXPECTED]", "src/selftest.mjs")
    parts = []
    for number, fields in enumerate(content[0], 1):
        spec = kvassay.Spec.from_dict(fields)
        shape = (40, spec.kv_heads, spec.head_dim)
        k, v = (pinned(16 * number + i, int(np.prod(shape))).reshape(shape) for i in (1, 2))
        q = pinned(16 * number + 3, 3 * spec.query_heads * spec.head_dim)
        q = q.reshape(3, spec.query_heads, spec.head_dim)
        with kvassay.load("reference").prepare(spec) as cache:
            cache.append(0, k, v)
            parts += [cache.scores(0, q[-1]).tobytes(), cache.attend(0, q).tobytes()]
            parts.insert(-2, cache.dump())
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    assert hashlib.sha256(digests).hexdigest() == content[1]


SHAPE = {"layers": 3, "kv_heads": 2, "query_heads": 4, "head_dim": 96}
IDENTITY = {"model": 'é \x7f \\ "', "adapter": "a", "tokenizer": "t\n", "runtime": "r"}
SPECS: tuple[dict[str, Any], ...] = (
    SHAPE,
    {**SHAPE, "seed": 2**64 - 1, "span": 77, "rounds": 1},
    {**SHAPE, "identity": IDENTITY, "rope": {"base": 10000, "dims": 96}},
    {**SHAPE, "rope": {"base": 0.1, "dims": 96, "scaling": "yarn"}},
    {**SHAPE, "layer_overrides": {"2": {"keys": "kivi:4", "span": None}, "0": {"window": 3}}},
    *({**SHAPE, "softmax_scale": scale} for scale in (1.0, 0.3, 2.0**-20, 1e-5, 2.0**20, 123456.7)),
    *({**SHAPE, **preset.fields} for preset in PRESETS.values()),
)


def test_identity_texts_and_hashes_are_those_of_python() -> None:
    specs = [kvassay.Spec.from_dict(fields) for fields in SPECS]
    data = [{**fields, "seed": str(s.seed)} for fields, s in zip(SPECS, specs, strict=True)]
    hashes = "Object.values(host.identityHashes(host.complete(spec))).map(String)"
    expression = f"data.map((spec) => [host.identityText(spec), {hashes}])"
    found = evaluate(expression, "src/spec.mjs", data)
    for spec, (text, numbers) in zip(specs, found, strict=True):
        assert text == spec.identity_text
        identity = spec.identity or kvassay.Identity()
        expected = (identity.model_hash, identity.tokenizer_hash, identity.runtime_hash)
        assert [int(number) for number in numbers] == list(expected)


def test_presets_are_those_of_python() -> None:
    assert evaluate("host.PRESETS") == {name: dict(p.fields) for name, p in PRESETS.items()}


def test_structs_are_laid_out_as_the_header_says(tmp_path: Path) -> None:
    """The compiler of the modules checks every offset and size that the host computed."""
    structs = evaluate("host", "src/layout.mjs")
    lines = ["#include <stddef.h>", '#include "kvassay.h"']
    for name, struct in structs.items():
        if not name.startswith("kv_"):
            continue
        lines.append(f'_Static_assert(sizeof({name}) == {struct["bytes"]}, "{name}");')
        for field, where in struct["fields"].items():
            offset = f"offsetof({name}, {field}) == {where['offset']}"
            lines.append(f'_Static_assert({offset}, "{name}.{field}");')
    assert len(lines) > 60
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-freestanding"]
    arguments = [f"-I{INCLUDE}", "-c", str(source), "-o", str(tmp_path / "layout.o")]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_is_complete() -> None:
    package = json.loads((ASSETS.host / "package.json").read_text())
    assert package["version"] == kvassay.__version__
    assert not {"dependencies", "peerDependencies", "devDependencies"} & package.keys()
    for name in package["files"]:
        assert name == "wasm" or (ASSETS.host / name).exists(), name
    types = (ASSETS.host / "kvassay.d.ts").read_text()
    for name in evaluate("Object.keys(host)"):
        assert re.search(rf"export (class|function|const) {name}\b", types), f"{name} has no type"
