"""The same text in chunks: a prefill whose early queries may meet neighbours already sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvassay.models import CacheAttention
from kvassay.records import Record
from kvassay.suite import Target

from .fidelity import first_sealed
from .measured import REAL, Origin, load
from .predictions import compare_predictions, prediction_records
from .real_model import cache_spec, fixed_text, real_model
from .sharing import share

#: Tokens given at once, as runtimes do with a prompt.
CHUNK: Final = 128


def measure(
    backend: str,
    variant: str,
    preset: str,
    model: str,
    tokens: int,
    followers: Sequence[tuple[str, str]] = (),
) -> list[Record]:
    """Next-token figures over the fixed text, appended and asked a chunk at a time."""
    target = Target(backend, variant)
    loaded = load(target)
    captured, network = fixed_text(model, tokens), real_model(model)
    spec = cache_spec(preset, captured)
    with loaded.prepare(spec) as cache:
        hidden = network.hidden(captured.tokens, CacheAttention(cache, chunk=CHUNK))
    found = compare_predictions(network, captured, hidden)
    # The chunk that seals the first page has it sealed before its first query is asked.
    first = first_sealed(spec.layer(0)) // CHUNK * CHUNK
    records = prediction_records(
        Origin(target, preset, REAL),
        found,
        first,
        f"chunks of {CHUNK}",
        "prefill",
        tokens=len(hidden),
        text=captured.digest,
    )
    return share(records, target, followers, preset, captured, "prefill")
