"""What docs/lifecycle.md allows in a state: lengths, retired pages, refusals."""

from __future__ import annotations

from dataclasses import dataclass

from kvassay.spec import LayerSpec


@dataclass
class LayerModel:
    """Length of a layer and how many of its pages have been retired."""

    spec: LayerSpec
    length: int = 0
    retired: int = 0

    def first_live(self, length: int) -> int:
        """Number of the first live page at `length`."""
        spec = self.spec
        if not spec.span:
            return 0
        dead = (length - spec.span - spec.sinks) // spec.page_tokens
        return max(0, min(spec.sealed(length), dead))

    def append(self, n: int) -> None:
        """Retire what is not live, then grow."""
        if n:
            self.retired = max(self.retired, self.first_live(self.length))
            self.length += n

    def reload(self) -> None:
        """A dump holds live pages only."""
        self.retired = self.first_live(self.length)

    def attend_refused(self, n: int) -> bool:
        """Whether the first of n queries needs a retired token."""
        spec = self.spec
        visible = self.length - n + 1
        first = max(visible - spec.span, spec.sinks) if spec.span else spec.sinks
        return first < min(spec.sinks + self.retired * spec.page_tokens, visible)

    def truncate_refused(self, n: int) -> str:
        """The name of the error that a truncation to n raises, "" where it is allowed."""
        spec = self.spec
        sealed = spec.sealed(n)
        if n == self.length:
            return ""
        kept = sealed == spec.sealed(self.length) or n == spec.sinks + sealed * spec.page_tokens
        if not (kept or n <= spec.sinks):
            return "TruncateError"
        if spec.span:
            first = max(0, (n - spec.span - spec.sinks) // spec.page_tokens)
            if first < sealed and first < self.retired:
                return "SpanError"
        return ""

    def truncate(self, n: int) -> None:
        """Cut to n tokens."""
        self.length = n
        self.retired = min(self.retired, self.spec.sealed(n))
