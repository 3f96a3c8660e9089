"""kvassay assays KV caches: correctness, parity, memory, performance and quality, with a
verdict."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ._version import __version__
from .errors import KvassayError

if TYPE_CHECKING:
    from .presets import preset, profile
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
    "profile",
    "register",
]

#: Where the names above are that are imported when they are first asked for: numpy alone takes
#: longer than a shell waits for a completion.
_HOMES: Final = {
    "presets": ("preset", "profile"),
    "protocol": (
        *("PROTOCOL_VERSION", "Availability", "Backend", "BackendProvider", "Cache"),
        *("Counters", "Support"),
    ),
    "records": ("RECORD_SCHEMA", "Record"),
    "registry": ("backends", "load", "register"),
    "spec": ("Identity", "Rope", "Spec"),
    "vector_codec": ("Encoded", "VectorCodec", "codec", "codecs"),
}

if not TYPE_CHECKING:  # which would take every name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _HOMES:  # `import kvassay` alone always brought these modules along
            return import_module(f".{name}", __name__)
        for home, names in _HOMES.items():
            if name in names:
                globals()[name] = getattr(import_module(f".{home}", __name__), name)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
