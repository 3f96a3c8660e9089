"""What a WebAssembly module does that ends its use."""

from __future__ import annotations

from typing import Final, Literal

from kvassay.errors import KvassayError

Kind = Literal["trap", "fuel", "bounds", "growth", "fence", "import", "export"]

#: What each kind is called in a verdict.
WORDS: Final[dict[str, str]] = {
    "trap": "trapped",
    "fuel": "did not end within its fuel",
    "bounds": "gave an address or size outside of its memory",
    "growth": "wanted more memory than its cap",
    "fence": "wrote outside of what it was given",
    "import": "imports what is not offered",
    "export": "lacks an export or has one of another type",
}


class ModuleFault(KvassayError):
    """A module trapped, ran out of fuel, lied about a size or address, or cannot be linked.

    `kind` says which. What happened inside an instance leaves it in an unknown state: every cache
    of that instance refuses further calls with the same fault.
    """

    def __init__(self, message: str, *, kind: Kind) -> None:
        super().__init__(message)
        self.kind = kind


class StaleHandleError(KvassayError):
    """A handle to a part of linear memory that was taken before the memory grew."""
