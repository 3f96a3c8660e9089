"""The table of docs/codecs.md: what each codec stores and what is measured of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Final

from ..vector_codec import codec, codecs
from .data import KINDS, synthetic
from .figures import measure

HEAD: Final = (
    "codec",
    "stored",
    "granularity",
    "published",
    "claimed there",
    "label",
    "default bits",
    "page bits, keys",
    "page bits, values",
    *(f"NMSE {kind}, keys" for kind in KINDS),
    "attention KL gaussian",
)
#: Columns that are facts of the code, not measurements.
STATIC: Final = 7


def facts(name: str) -> tuple[str, ...]:
    """The static columns of a codec."""
    cls = codecs()[name]
    stored = re.sub(r"\s+", " ", (inspect.getdoc(cls) or "").partition("\n\n")[0])
    label = "-" if cls.claim.startswith("none") else cls.label
    rate = f"{cls.rates[0]:g}"
    return f"`{name}`", stored, cls.granularity, cls.paper, cls.claim, label, rate


def measured(name: str, head_dim: int = 128) -> tuple[str, ...]:
    """The other columns, at the default rate and d = 128."""
    keys = codec(name, head_dim=head_dim)
    values = codec(name, head_dim=head_dim, role="value")
    found = [measure(keys, synthetic(kind, head_dim)) for kind in KINDS]
    page_bits = measure(values, synthetic("gaussian", head_dim)).page_bits
    return (
        f"{found[0].page_bits:.3f}",
        f"{page_bits:.3f}",
        *(f"{figures.nmse:.3g}" for figures in found),
        f"{found[0].attention_kl:.3g}",
    )


def table(names: Iterable[str]) -> str:
    """Markdown."""
    rows = [HEAD, tuple("---" for _ in HEAD)]
    rows += [(*facts(name), *measured(name)) for name in names]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )
