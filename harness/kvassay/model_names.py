"""Names of models: apart from what runs them, which takes long to import."""

from __future__ import annotations

from typing import Final, Literal, get_args

#: The model of the quality suite.
DEFAULT_MODEL: Final = "smollm2-135m"
GEMMA: Final = "gemma3-270m"
#: Models whose files packages bring.
INSTALLABLE: Final = (DEFAULT_MODEL, GEMMA)

#: Attention of the small transformers with weights from a generator: `tiny-gqa` and so on.
TinyKind = Literal["gqa", "mha", "mqa"]
TINY: Final = tuple(f"tiny-{kind}" for kind in get_args(TinyKind))
