"""Finds backends: entry points, `module:Class` names, and providers registered in the process."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from . import plugins
from .backend.own_formats import OwnFormatBackend
from .backend.signatures import mismatches
from .errors import KvassayError, RegistryError, UnavailableError, UnknownBackendError
from .plugins import BACKENDS, LOADERS
from .protocol import PROTOCOL_VERSION, Availability, Backend, BackendProvider
from .suggest import did_you_mean

#: The backend that exact ones are compared with.
REFERENCE: Final = "reference"

_registered: dict[str, BackendProvider] = {}


class ClassProvider(BackendProvider):
    """A provider for a plain Backend class: one variant, always ready."""

    foreign = True

    def __init__(self, name: str, cls: type[Backend]) -> None:
        self.name = name
        self.protocol = getattr(cls, "protocol", PROTOCOL_VERSION)
        self._class = cls

    def variants(self) -> Mapping[str, Availability]:
        return {getattr(self._class, "variant", "scalar"): Availability("ready")}

    def load(self, variant: str) -> Backend:
        return self._class()


def register(provider: BackendProvider) -> None:
    """Add a provider to this process; raises RegistryError on a duplicate name or wrong
    signature."""
    _check(provider, provider.name)
    if provider.name in _registered or provider.name in plugins.names(BACKENDS):
        raise RegistryError(
            f"a backend named {provider.name!r} exists already; choose another name"
        )
    _registered[provider.name] = provider


def unregister(name: str) -> None:
    """Remove a provider added by `register`."""
    _registered.pop(name, None)


def providers() -> dict[str, BackendProvider]:
    """All providers by name."""
    found = {name: _offered(name) for name in plugins.names(BACKENDS)}
    return dict(sorted({**found, **_registered}.items()))


def provider(name: str) -> BackendProvider:
    """The provider of a registered name, of `scheme:path` or of `module:Class`.

    No other is imported: a backend's packages are asked for by those who use it.
    """
    scheme, colon, path = name.partition(":")
    if colon:
        if scheme in plugins.names(LOADERS):
            return _as_provider(name, plugins.load(LOADERS, scheme)(path))
        return _from_path(name)
    if name in _registered:
        return _registered[name]
    known = {*plugins.names(BACKENDS), *_registered}
    if name not in known:
        raise UnknownBackendError(
            f"no backend {name!r}{did_you_mean(name, known)} (one that is not registered is named "
            f"module:Class)"
        )
    return _offered(name)


def _offered(name: str) -> BackendProvider:
    """The provider that an installed package offers under a name."""
    return _as_provider(name, plugins.load(BACKENDS, name))


def backends_of(package: str) -> list[str]:
    """Names of the backends that an installed package registers; `package` names the distribution
    or the module. Raises UnknownBackendError if there are none."""
    wanted = _normal(package)
    points = plugins.points(BACKENDS)
    named = {_normal(point.dist.name) for point in points if point.dist is not None}
    found = [
        point.name
        for point in points
        if wanted == _normal(point.module.partition(".")[0])
        or (point.dist is not None and wanted == _normal(point.dist.name))
    ]
    if not found:
        raise UnknownBackendError(
            f"no installed package {package!r} registers a backend"
            f"{did_you_mean(wanted, named)} (entry point group {BACKENDS})"
        )
    return sorted(dict.fromkeys(found))


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def backends() -> dict[str, dict[str, Availability]]:
    """Every backend and variant with its availability."""
    return {name: variants_of(found) for name, found in providers().items()}


def variants_of(found: BackendProvider) -> dict[str, Availability]:
    """The variants of a provider, best first; RegistryError where it does not list them so."""
    with _others_code(found.name, "variants()"):
        states = found.variants()
    if not isinstance(states, Mapping) or not all(
        isinstance(key, str) and isinstance(state, Availability) for key, state in states.items()
    ):
        raise RegistryError(
            f"backend {found.name!r}: variants() returned {states!r}, no mapping of names to "
            f"Availability"
        )
    return dict(states)


def usual(known: Mapping[str, BackendProvider]) -> list[str]:
    """The backends that are judged where none is named: those not on request."""
    return [name for name, found in known.items() if not found.on_request]


def load(name: str, variant: str | None = None) -> Backend:
    """The backend `name`; `variant` None takes the best that runs, any other runs exactly or
    raises.

    Raises UnknownBackendError for unknown names, UnavailableError where it cannot run here.
    """
    found = provider(name)
    variants = variants_of(found)
    if variant is None:
        variant = next((key for key, state in variants.items() if state.runs), None)
        if variant is None:
            states = (f"{key}: {_say(state)}" for key, state in variants.items())
            reasons = "; ".join(states) or "it lists none"
            raise UnavailableError(f"backend {name!r} has no variant that runs here ({reasons})")
    if variant not in variants:
        raise UnknownBackendError(
            f"backend {name!r} has no variant {variant!r}{did_you_mean(variant, variants)}"
        )
    state = variants[variant]
    if not state.runs:
        raise UnavailableError(f"backend {name!r}, variant {variant!r}: {_say(state)}")
    with _others_code(name, f"load({variant!r})"):
        backend = found.load(variant)
    _check_class(name, type(backend), Backend)
    _check_promise(name, backend)
    if backend.variant != variant:
        raise UnavailableError(
            f"backend {name!r} was asked for variant {variant!r} but loaded {backend.variant!r}"
        )
    return backend


def _say(state: Availability) -> str:
    return f"{state.status}: {state.reason}" if state.reason else state.status


def _from_path(name: str) -> BackendProvider:
    module_name, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownBackendError(f"cannot import backend {name!r}: {error}") from error
    except (Exception, SystemExit) as error:  # somebody's own module may raise anything
        said = f"cannot import backend {name!r}: {type(error).__name__}: {error}"
        raise UnknownBackendError(said) from error
    return _as_provider(name, found)


@contextmanager
def _others_code(name: str, what: str) -> Iterator[None]:
    """Around a call of somebody's own code: what it raises names the backend and the call."""
    try:
        yield
    except KvassayError:
        raise
    except Exception as error:
        said = f"backend {name!r}: {what} raised {type(error).__name__}: {error}"
        raise RegistryError(said) from error


def _as_provider(name: str, found: Any) -> BackendProvider:
    if inspect.isclass(found) and issubclass(found, Backend):
        _check_class(name, found, Backend)
        found = ClassProvider(name, found)
    elif inspect.isclass(found) and issubclass(found, BackendProvider):
        with _others_code(name, f"{found.__name__}()"):
            found = found()
    _check(found, name)
    return found  # type: ignore[no-any-return]


def _check(found: Any, name: str) -> None:
    if not isinstance(found, BackendProvider):
        raise RegistryError(
            f"backend {name!r}: {found!r} is neither a Backend class nor a BackendProvider"
        )
    if found.protocol != PROTOCOL_VERSION:
        raise RegistryError(
            f"backend {name!r} speaks protocol {found.protocol!r}, "
            f"this kvassay speaks {PROTOCOL_VERSION}"
        )
    _check_class(name, type(found), BackendProvider)


def _check_class(name: str, cls: type, base: type) -> None:
    if wrong := mismatches(cls, base):
        raise RegistryError(
            f"backend {name!r}: {cls.__name__} cannot be used as a {base.__name__}: "
            f"{'; '.join(wrong)}"
        )


def _check_promise(name: str, backend: Backend) -> None:
    """RegistryError for a backend that promises neither bits nor a bound that means something."""
    if backend.exact is True:
        return
    if isinstance(backend, OwnFormatBackend):
        bounds: list[float | None] = [one.bound for one in backend.formats.values()]
    else:
        bounds = [backend.bound]
    for bound in bounds:
        if backend.exact is not False or not _is_bound(bound):
            raise RegistryError(
                f"backend {name!r}: exact is {backend.exact!r} and bound is {bound!r}; it needs "
                f"exact = True, or exact = False and a bound that is positive and finite"
            )


def _is_bound(bound: object) -> bool:
    """Whether it is a positive, finite number."""
    return isinstance(bound, (int, float)) and bound is not True and 0 < bound < math.inf
