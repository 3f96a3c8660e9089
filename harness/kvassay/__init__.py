"""kvassay assays KV caches: correctness, parity, memory, performance and quality, with a
verdict."""

from ._version import __version__
from .errors import KvassayError
from .presets import preset
from .protocol import (
    PROTOCOL_VERSION,
    Availability,
    Backend,
    BackendProvider,
    Cache,
    Counters,
    Support,
)
from .records import RECORD_SCHEMA, Record
from .registry import backends, load, register
from .spec import Identity, Rope, Spec

# After the submodule of the same name, which holds what specs call codecs and stays importable.
from .vector_codec import Encoded, VectorCodec, codec, codecs

#: For `pytest -p kvassay`: what takes part in a run of pytest then, and in no other.
pytest_plugins = ["kvassay_suites.plugin"]

__all__ = [
    "PROTOCOL_VERSION",
    "RECORD_SCHEMA",
    "Availability",
    "Backend",
    "BackendProvider",
    "Cache",
    "Counters",
    "Encoded",
    "Identity",
    "KvassayError",
    "Record",
    "Rope",
    "Spec",
    "Support",
    "VectorCodec",
    "__version__",
    "backends",
    "codec",
    "codecs",
    "load",
    "preset",
    "register",
]
