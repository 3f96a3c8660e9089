"""The page for the tests: exported, driven in Node and in Chromium; a small quantized model."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from kvassay_backends.web import assets
from kvassay_suites.browser.engines import candidates

_DRIVER: Final = Path(__file__).with_name("driver.mjs")
_LEAST_NODE: Final = 20
HIDDEN, FFN, LAYERS, QUERY_HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
_SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES: Final = ("h e", "l l", "Ġ w", "he ll", "hell o")
CHATML: Final = (
    "{% if x %}{{ '<|im_start|>system\nBe brief<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
)


def built() -> list[str]:
    """Variants whose modules are built; skips where there is none."""
    found = list(assets.modules)
    if not found:
        pytest.skip("no WebAssembly module is built: python backends/hatch_build.py wasm")
    return found


def node() -> str:
    """The Node program; skips with the reason where it is missing or too old."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node: install Node 20 or newer")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    major = int(re.findall(r"\d+", version.stdout)[0])
    if major < _LEAST_NODE:
        pytest.skip(f"node is version {major}, older than {_LEAST_NODE}")
    return program


def drive(folder: Path, operation: str, **request: Any) -> Any:
    """The answer of driver.mjs to one request, on the page in `folder`."""
    done = subprocess.run(
        [node(), str(_DRIVER), str(folder)],
        input=json.dumps({"operation": operation, **request}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_model(
    path: Path,
    *,
    omit: Collection[str] = (),
    metadata: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
    seed: int = 7,
) -> Path:
    """A small llama model: matrices in Q4_1, embedding in Q8_0, norms in F32.

    omit: keys and tensors left out. metadata: keys added or replaced. kinds: GGUF types of
    tensors stored otherwise.
    """
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {**_metadata(), **(metadata or {})}.items():
        if key not in omit:
            _add(writer, key, value)
    rng = np.random.default_rng(seed)
    for name, shape in _shapes().items():
        weights = rng.normal(scale=HIDDEN**-0.5, size=shape).astype(np.float32)
        default = "F32" if len(shape) == 1 else "Q8_0" if name.startswith("token") else "Q4_1"
        kind = gguf.GGMLQuantizationType[(kinds or {}).get(name, default)]
        if name not in omit:
            writer.add_tensor(name, quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _metadata() -> dict[str, Any]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    pieces = [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(hidden))]
    pieces = [*_SPECIALS, *pieces, *(merge.replace(" ", "") for merge in _MERGES)]
    return {
        "general.name": "small",
        "llama.block_count": LAYERS,
        "llama.context_length": 512,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": QUERY_HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [3] * len(_SPECIALS) + [1] * (len(pieces) - len(_SPECIALS)),
        "tokenizer.ggml.merges": list(_MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHATML,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, value)


def _shapes() -> dict[str, tuple[int, ...]]:
    queries, kv = QUERY_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(_metadata()["tokenizer.ggml.tokens"]), HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for name, shape in (
            ("attn_norm", (HIDDEN,)),
            ("attn_q", (queries, HIDDEN)),
            ("attn_k", (kv, HIDDEN)),
            ("attn_v", (kv, HIDDEN)),
            ("attn_output", (HIDDEN, queries)),
            ("ffn_norm", (HIDDEN,)),
            ("ffn_gate", (FFN, HIDDEN)),
            ("ffn_up", (FFN, HIDDEN)),
            ("ffn_down", (HIDDEN, FFN)),
        ):
            shapes[f"blk.{layer}.{name}.weight"] = shape
    return shapes


@contextmanager
def chromium() -> Iterator[Any]:
    """A started Chromium; skips with the reason where there is none."""
    (engine,) = candidates("chromium", "")
    if engine.reason:
        pytest.skip(engine.reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A container's root has no namespaces for Chromium's sandbox; the page is our own.
        browser = playwright.chromium.launch(
            executable_path=engine.program, chromium_sandbox=os.geteuid() != 0
        )
        yield browser
        browser.close()


class Visit:
    """The page in a tab, by clicks. `complaints`: errors of the console and foreign requests."""

    def __init__(self, browser: Any, url: str, **options: Any) -> None:
        self.url = url
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(10 * 60_000)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.complaints.append(f"request to {request.url}")

    def open(self) -> None:
        """Until the session is ready."""
        self.page.goto(self.url)
        self.page.wait_for_selector("#facts dl")
        self.idle()

    def idle(self) -> None:
        """Until the session does nothing."""
        self.page.wait_for_selector("#session[aria-busy=false]")

    def text(self, selector: str) -> str:
        """What is to be read there."""
        return str(self.page.locator(selector).inner_text())

    def press(self, button: str) -> str:
        """Presses a button of the session; returns what it did."""
        self.page.click(f"#{button}")
        self.idle()
        return self.text("#outcome")

    def choose(self, name: str, value: str) -> str:
        """Changes a choice of the session; returns what it did."""
        self.page.select_option(f"#{name}", value)
        self.idle()
        return self.text("#outcome")

    def say(self, text: str) -> None:
        """One turn of the conversation."""
        self.page.fill("#text", text)
        self.press("send")

    def facts(self) -> dict[str, str]:
        """The figures about the cache."""
        facts = self.page.locator("#facts .fact").all()
        return {
            fact.locator("dt").inner_text(): fact.locator("dd").inner_text().strip()
            for fact in facts
        }

    def run_suites(self) -> None:
        """Until the suites have run."""
        self.page.click("#run")
        self.page.wait_for_selector("#progress", state="visible")
        self.page.wait_for_selector("#run:enabled")
