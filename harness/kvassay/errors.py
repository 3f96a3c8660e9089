"""Every error kvassay raises on purpose.

All of them derive from `KvassayError`, so one `except` catches what the project refuses and lets
bugs through. Messages name what was wrong, where, and what to do.
"""

from __future__ import annotations


class KvassayError(Exception):
    """Base of all errors raised on purpose."""


class SpecError(KvassayError, ValueError):
    """A spec, preset or codec name that contradicts itself or does not exist."""


class UnsupportedError(KvassayError):
    """A well-formed spec that this backend or variant does not execute."""


class UnknownBackendError(KvassayError, LookupError):
    """No backend, variant, suite or rule of that name; the message suggests near ones."""


class UnavailableError(KvassayError):
    """The backend or variant exists but cannot run here; the message carries status and reason."""


class RegistryError(KvassayError):
    """A backend that cannot be registered: duplicate name, wrong signature, other protocol
    version."""


class InputError(KvassayError, ValueError):
    """An array or argument of the wrong shape, dtype, layout or range."""


class NonFiniteError(InputError):
    """NaN, infinity, or a magnitude fp16 cannot hold; layer, token, head and channel are
    attributes."""

    def __init__(self, message: str, *, layer: int, token: int, head: int, channel: int) -> None:
        super().__init__(message)
        self.layer = layer
        self.token = token
        self.head = head
        self.channel = channel


class StateError(KvassayError):
    """Not possible in this state: attend on an empty cache, more queries than tokens, closed
    cache."""


class TruncateError(StateError):
    """The truncation needs fp16 data that exists only as codes; `allowed` lists lengths near by."""

    def __init__(self, message: str, *, allowed: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class SpanError(StateError):
    """The operation needs tokens whose pages the span has retired."""


class PageError(KvassayError):
    """Page or dump bytes that are damaged or are not of the documented format."""


class BoundsError(KvassayError):
    """Foreign code wrote outside of the memory that it was given; the message names the call, the
    buffer and how far away."""


class WriteError(KvassayError, OSError):
    """A file could not be written; what it was to hold, and any file of that name, are as they
    were."""


class IdentityError(KvassayError):
    """Sound bytes that belong to another cache; `field` is the first differing field."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class CacheMemoryError(KvassayError, MemoryError):
    """The allocator refused; the cache is as it was.

    `asked` and `left` are bytes, where memory has a cap: what was wanted, and what is still free
    below the cap.
    """

    def __init__(self, message: str, *, asked: int | None = None, left: int | None = None) -> None:
        super().__init__(message)
        self.asked = asked
        self.left = left


class ModelError(KvassayError):
    """A model file that is missing, damaged or of an unsupported architecture."""


class TensorsError(KvassayError):
    """A file of captured tensors that is missing, damaged or not of the documented format."""


class RecordError(KvassayError):
    """Records or rules that cannot be read or explained: other schema version, missing field, a
    value that no measurement gives, a total that does not agree."""
