"""`kvassay plan`: what a cache costs before it exists."""

from __future__ import annotations

import json as jsonlib
import re
import sys
from typing import Annotated, Any, Final

import typer

from ..errors import InputError, SpecError
from ..presets import preset as make_spec
from ..presets import profile as make_profile
from ..spec import Spec
from .parts.completing import (
    complete_key_codecs,
    complete_models,
    complete_presets,
    complete_profiles,
    complete_value_codecs,
)
from .parts.plain_table import PlainTable
from .parts.terminal import Verbose, output

_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**n for n, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**n for n, letter in enumerate("kmgt", 1)},
}


def plan(
    preset: Annotated[
        str,
        typer.Option(help="Preset whose fields to start from.", autocompletion=complete_presets),
    ] = "turbo",
    profile: Annotated[
        str | None,
        typer.Option(
            help="Profile by name or file, instead of a preset; with its model's shape.",
            autocompletion=complete_profiles,
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(help="Key codec, for instance turbo:3.5.", autocompletion=complete_key_codecs),
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Value codec.", autocompletion=complete_value_codecs)
    ] = None,
    window: Annotated[int | None, typer.Option(help="Newest tokens kept as fp16.")] = None,
    sinks: Annotated[int | None, typer.Option(help="First tokens kept as fp16.")] = None,
    span: Annotated[int | None, typer.Option(help="Newest tokens attended at all.")] = None,
    page_tokens: Annotated[int | None, typer.Option(help="Tokens a page.")] = None,
    key_centre: Annotated[str | None, typer.Option(help="none, frozen or page.")] = None,
    value_centre: Annotated[str | None, typer.Option(help="none or frozen.")] = None,
    scale: Annotated[str | None, typer.Option(help="u8, u8log or fp16.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of the transform, 1 or 2.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Take the shape from a model by name or a GGUF file.",
            autocompletion=complete_models,
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers.")] = None,
    kv_heads: Annotated[int | None, typer.Option(help="KV heads.")] = None,
    query_heads: Annotated[int | None, typer.Option(help="Query heads (default: as KV).")] = None,
    head_dim: Annotated[int | None, typer.Option(help="Head dim.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Context length to price.")] = 32768,
    budget: Annotated[str, typer.Option(help="Memory for a cache, for instance 512MiB.")] = "1GiB",
    bandwidth: Annotated[float, typer.Option(min=1e-3, help="Read bandwidth in GB/s.")] = 20.0,
    op_time: Annotated[
        float, typer.Option(min=1e-6, help="Time of one scalar operation of an append, in ns.")
    ] = 0.25,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    verbose: Verbose = False,
) -> int:
    """Price a cache before it exists: bytes, bits, longest context, bandwidth, transform work."""
    from .parts.selecting import choose_presets  # brings the backends: slow to import

    if profile is None:
        choose_presets([preset])
    policy = {
        "keys": keys,
        "values": values,
        "window": window,
        "sinks": sinks,
        "span": span,
        "page_tokens": page_tokens,
        "key_centre": key_centre,
        "value_centre": value_centre,
        "scale": scale,
        "rounds": rounds,
    }
    sizes = model, layers, kv_heads, query_heads, head_dim
    if profile is None:
        spec = _spec(preset, policy, _shape(*sizes))
    else:
        spec = _fitted(profile, policy, model, _shape(*sizes) if any(sizes) else {})
    figures = price(spec, tokens, parse_size(budget), bandwidth * 1e9, op_time * 1e-9)
    if json:
        sys.stdout.write(jsonlib.dumps(figures, indent=2) + "\n")
    else:
        output().print(_title(spec, tokens), markup=False)
        output().print(_table(spec, figures))
        parts = ", ".join(f"{k} {size(n)}" for k, n in figures["bytes_by_part"].items() if n)
        output().print(f"held: {parts}", markup=False, style="dim")
        output().print(_NOTE, style="dim")
    return 0


_NOTE: Final = (
    "Bytes are exact from the page layout; scratch, staging and bookkeeping of a backend come on "
    "top. Operation counts are those of a scalar implementation."
)


def price(
    spec: Spec, tokens: int, budget: int, bandwidth: float, op_seconds: float
) -> dict[str, Any]:
    """All figures of a plan: bytes, bits, tokens and operations as plain data.

    `bandwidth` in bytes a second. An unlimited context is None.
    """
    from ..page.costs import (  # numpy: slow to import
        Costs,
        blocked_work,
        compression,
        dense_work,
        padded_work,
        payback,
    )

    costs, plain = Costs.of(spec), Costs.of(_as_fp16(spec))
    held, fp16, saved = costs.held(tokens), costs.fp16(tokens), costs.saved(tokens)
    append = costs.append_ops()
    code_bits = costs.code_bits
    dim = spec.head_dim
    blocked = blocked_work(dim, spec.rounds)
    return {
        "spec": spec.to_dict(),
        "tokens": tokens,
        "payload_bytes_a_token_fp16": 2 * costs.values,
        "payload_bytes_a_token": costs.values * code_bits / 16,
        "code_bits": code_bits / 2,
        "page_bits": costs.page_bits,
        "all_in_bits": costs.all_in_bits(tokens),
        "compression_code_bits": compression(code_bits / 2, code_bits / 2),
        "compression_page_bits": 16 / costs.page_bits,
        "compression_all_in": fp16 / held,
        "bytes_held": held,
        "bytes_held_fp16": fp16,
        "bytes_by_part": costs.parts(tokens),
        "bytes_fixed": costs.fixed(),
        "budget_bytes": budget,
        "longest_context": costs.longest(budget),
        "longest_context_fp16": plain.longest(budget),
        "bytes_saved_a_step": saved,
        "seconds_saved_a_step": saved / bandwidth,
        "append_operations_a_token": append,
        "steps_to_pay_one_append": _finite(payback(append, op_seconds, saved, bandwidth)),
        "steps_to_pay_the_context": _finite(payback(append * tokens, op_seconds, saved, bandwidth)),
        "transform_dense": dense_work(dim),
        "transform_padded": padded_work(dim),
        "transform_blocked": blocked,
        "transform_ratio_padded": dense_work(dim) / padded_work(dim),
        "transform_ratio_blocked": dense_work(dim) / blocked,
    }


def parse_size(text: str) -> int:
    """Bytes of `512MiB`, `1.5GB` or `1000000`; raises InputError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = match[2].lower() if match else ""
    if not match or unit not in _UNITS:
        raise InputError(f"budget: {text!r} is no size; write for instance 512MiB, 2GB or 1000000")
    return int(float(match[1]) * _UNITS[unit])


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def _as_fp16(spec: Spec) -> Spec:
    """The same shape and span as plain fp16."""
    return Spec(spec.layers, spec.kv_heads, spec.query_heads, spec.head_dim, span=spec.span)


def _spec(name: str, policy: dict[str, Any], shape: dict[str, Any]) -> Spec:
    """The preset with what the user gave instead; an fp16 stream drops the preset's centring."""
    given = {key: value for key, value in policy.items() if value is not None}
    for stream, centre in (("keys", "key_centre"), ("values", "value_centre")):
        if given.get(stream) == "fp16":
            given.setdefault(centre, "none")
    return make_spec(name, **{**given, **shape})


def _fitted(name: str, policy: dict[str, Any], model: str | None, shape: dict[str, Any]) -> Spec:
    """The profile with what the user gave instead; refuses a model and a shape of another."""
    if model is not None:
        from .parts.selecting import choose_profiles

        choose_profiles([name], model)
    given = {key: value for key, value in policy.items() if value is not None}
    return make_profile(name, **{**given, **shape})


def _shape(
    model: str | None,
    layers: int | None,
    kv_heads: int | None,
    query_heads: int | None,
    head_dim: int | None,
) -> dict[str, Any]:
    """The shape from a model, then from options, which win."""
    shape = _model_shape(model) if model else {}
    given = {
        "layers": layers,
        "kv_heads": kv_heads,
        "query_heads": query_heads if query_heads or model else kv_heads,
        "head_dim": head_dim,
    }
    shape |= {name: value for name, value in given.items() if value is not None}
    if missing := [name for name in given if name not in shape]:
        needed = [name for name in missing if name != "query_heads"]  # as many as KV heads else
        options = ", ".join(f"--{name.replace('_', '-')}" for name in needed)
        raise SpecError(f"plan: no shape: give {options}, or --model smollm2-135m")
    return shape


def _model_shape(model: str) -> dict[str, Any]:
    """Shape from a GGUF file's metadata; no weight is read."""
    from ..models import GGUFFile, locate, read_shape  # needs gguf
    from ..models.architecture import ARCHITECTURES

    file = GGUFFile(locate(model))
    architecture = file.text("general.architecture")
    if architecture in ARCHITECTURES and ARCHITECTURES[architecture].sliding:
        return read_shape(file).shape
    # Any other architecture too: a price needs no forward pass.
    heads = file.integer(f"{architecture}.attention.head_count")
    width = file.integer(f"{architecture}.embedding_length")
    return {
        "layers": file.integer(f"{architecture}.block_count"),
        "kv_heads": file.integer(f"{architecture}.attention.head_count_kv", heads),
        "query_heads": heads,
        "head_dim": file.integer(f"{architecture}.attention.key_length", width // heads),
    }


def _title(spec: Spec, tokens: int) -> str:
    shape = f"{spec.layers} layers, {spec.kv_heads} KV heads, head dim {spec.head_dim}"
    return f"{shape}: keys {spec.keys}, values {spec.values}, {tokens:,} tokens"


def _table(spec: Spec, figures: dict[str, Any]) -> PlainTable:
    f = figures
    table = PlainTable("what", "this cache", "fp16", right=("this cache", "fp16"))
    for row in (
        ("payload a token (codes alone)", size(f["payload_bytes_a_token"]),
         size(f["payload_bytes_a_token_fp16"])),
        ("bits a value: codes", f"{f['code_bits']:.4g}", "16"),
        ("bits a value: sealed pages", f"{f['page_bits']:.4g}", "16"),
        ("bits a value: all in", f"{f['all_in_bits']:.4g}", "16"),
        ("compression: codes, pages, all in", "  ".join(
            f"{f[f'compression_{k}']:.2f}" for k in ("code_bits", "page_bits", "all_in")), "1"),
        ("bytes held", size(f["bytes_held"]), size(f["bytes_held_fp16"])),
        (f"longest context in {size(f['budget_bytes'])}", count(f["longest_context"]),
         count(f["longest_context_fp16"])),
        ("bytes saved a decode step", size(f["bytes_saved_a_step"]), "-"),
        ("time saved a decode step", f"{1e3 * f['seconds_saved_a_step']:.4g} ms", "-"),
        ("operations of an append, a token", f"{f['append_operations_a_token']:,}", "0"),
        ("decode steps that pay one append back", steps(f["steps_to_pay_one_append"]), "-"),
        ("decode steps that pay the whole context", steps(f["steps_to_pay_the_context"]), "-"),
        ("transform of a vector: dense", f"{f['transform_dense']:,}", "-"),
        ("  on the next power of two",
         f"{f['transform_padded']:,} ({f['transform_ratio_padded']:.1f} x less)", "-"),
        (f"  in blocks, {spec.rounds} rounds (this one)",
         f"{f['transform_blocked']:,} ({f['transform_ratio_blocked']:.1f} x less)", "-"),
    ):  # fmt: skip
        table.add_row(*row)
    return table


def size(count: float) -> str:
    """Bytes in a readable unit of 1024."""
    sign, value = ("-", -count) if count < 0 else ("", count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < (1024 if unit == "B" else 10240) or unit == "GiB":
            break
        value /= 1024
    return f"{sign}{value:.0f} B" if unit == "B" else f"{sign}{value:,.1f} {unit}"


def count(tokens: int | None) -> str:
    """A number of tokens; None is no limit."""
    return "unlimited" if tokens is None else f"{tokens:,}"


def steps(value: float | None) -> str:
    """A number of decode steps; None is never."""
    return "never" if value is None else f"{value:.3g}"
