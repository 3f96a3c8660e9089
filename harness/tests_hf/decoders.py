"""Every decoder class of transformers, tiny and random, with a KvassayCache that keeps fp16.

`python harness/tests_hf/decoders.py` writes the table of docs/transformers.md anew; the tests hold
the page to what runs. A class runs if its logits are those of eager attention; else the table says
with which words it is refused, or why transformers itself cannot make it that small.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from kvassay.errors import KvassayError
from kvassay.hf import KvassayCache

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "transformers.md"
RUNS: Final = "runs"
NOT_MADE: Final = "not tried"
_TABLE: Final = re.compile(r"(<!-- decoders -->\n).*?(<!-- end -->)", re.S)
#: Under which names configs keep what makes a model small; each is set where a config has it.
_SMALL: Final[dict[str, Any]] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), 128),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), 128),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), 128),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 2),
    "num_key_value_heads": 1,
    **dict.fromkeys(("head_dim", "attention_head_size"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 256),
    **dict.fromkeys(("pad_token_id", "bos_token_id"), 0),
    **dict.fromkeys(("layer_types", "mlp_layer_types", "eos_token_id"), None),
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "resid_pdrop", "attn_pdrop"), 0.0),
    "embd_pdrop": 0.0,
}
TOKENS: Final = [(5 * i * i + i) % 120 + 2 for i in range(40)]
#: fp16 rounds, and a router of experts may then choose otherwise; a wrong mask or scale gives .1.
TOLERANCE: Final = 2e-2
_MOST_WEIGHTS: Final = 20_000_000


def classes() -> list[tuple[str, str]]:
    """(model type, class) of every decoder that transformers registers, by class."""
    found: dict[str, str] = {}
    for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        found.setdefault(name if isinstance(name, str) else name[0], kind)
    return sorted((kind, name) for name, kind in found.items())


def small(kind: str) -> Any:
    """The config of a model type with little of everything."""
    config = transformers.AutoConfig.for_model(kind)
    known = set(config.get_text_config(decoder=True).to_dict()) | set(type(config).attribute_map)
    fields = {name: value for name, value in _SMALL.items() if name in known}
    made = transformers.AutoConfig.for_model(kind, **fields)
    text = made.get_text_config(decoder=True)
    if text is not made:  # a composed config takes the fields in its text part
        parts = {n for n, v in made.to_dict().items() if isinstance(v, dict) and "text" in n}
        made = transformers.AutoConfig.for_model(kind, **dict.fromkeys(parts, fields))
    return made


def verdict(kind: str, name: str) -> tuple[str, str]:
    """What one class does: (state, why)."""
    torch.manual_seed(0)
    try:
        config = small(kind)
        made = getattr(transformers, name)
        with torch.device("meta"):
            weights = sum(one.numel() for one in made._from_config(config).parameters())
        if weights > _MOST_WEIGHTS:
            return NOT_MADE, f"not made small by these fields: {weights / 1e6:.0f} million weights"
        model = made._from_config(config).eval().float()
    except Exception as error:  # transformers', whatever it is
        return NOT_MADE, f"transformers does not make it so small: {type(error).__name__}"
    ids = torch.tensor([TOKENS])
    try:
        with torch.no_grad():
            model.set_attn_implementation("eager")
            expected = model(ids, use_cache=False).logits[0]
    except Exception as error:
        return NOT_MADE, f"its eager pass of the tiny model fails: {type(error).__name__}"
    try:
        with torch.no_grad():
            cache = KvassayCache(model, preset="fp16")
            first = model(ids[:, :30], cache=cache).logits[0]
            steps = [
                model(ids[:, n : n + 1], cache=cache).logits[0] for n in range(30, len(TOKENS))
            ]
    except KvassayError as error:
        return "refused", str(error).partition("; call model")[0]
    except Exception as error:
        return "refused", f"transformers: {type(error).__name__}: {str(error).splitlines()[0]}"
    found = torch.cat([first, *steps])
    drift = float((found - expected).norm() / expected.norm())
    if not drift <= TOLERANCE:
        return "WRONG", f"logits differ from eager attention by {drift:.1e}"
    if cache.kvassay.length != len(TOKENS):
        return "WRONG", f"{cache.kvassay.length} tokens stored of {len(TOKENS)}"
    return RUNS, ""


def rows() -> Iterator[tuple[str, str, str]]:
    """(class, state, why) of all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, name in classes():
            yield name, *verdict(kind, name)


def table(found: list[tuple[str, str, str]]) -> str:
    """The part of the page between its marks."""
    states = [state for _, state, _ in found]
    counts = ", ".join(f"{states.count(s)} {s}" for s in sorted(set(states), key=states.count))
    lines = [f"| `{name}` | {state} | {why.replace('|', '/')} |" for name, state, why in found]
    versions = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    head = "| class | | why |\n|---|---|---|\n"
    return f"\n{len(found)} classes ({versions}): {counts}.\n\n{head}" + "\n".join(lines) + "\n\n"


def main() -> int:
    """Write the table; the exit status says whether a class computes something wrong."""
    found = list(rows())
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_TABLE.sub(lambda m: m[1] + table(found) + m[2], page), encoding="utf-8")
    wrong = [row for row in found if row[1] == "WRONG"]
    print(f"{sum(state == RUNS for _, state, _ in found)} of {len(found)} run", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
