"""Whether a class can be called as the protocol calls it, found out when it is registered."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def mismatches(cls: type, base: type) -> list[str]:
    """What keeps `cls` from being used as `base`: missing methods, and other signatures.

    A method may have more parameters than the protocol's if they have defaults.
    """
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    wrong = [f"{name} is missing" for name in missing]
    for name, declared in vars(base).items():
        if name.startswith("_") or name in missing or not inspect.isfunction(declared):
            continue
        own = getattr(cls, name, None)
        if not callable(own):
            wrong.append(f"{name} is no method")
        elif reason := _differs(own, declared):
            wrong.append(f"{name}{inspect.signature(own)}: {reason}")
    return wrong


def _differs(own: Any, declared: Any) -> str:
    """Why `own` cannot be called as `declared`, by place and by name; "" if it can."""
    expected = list(inspect.signature(declared).parameters.values())
    signature = inspect.signature(own)
    places = [None for one in expected if one.kind in _BY_PLACE]
    names = {one.name: None for one in expected[1:] if one.default is not Parameter.empty}
    needed = [None for one in expected if one.default is Parameter.empty]
    try:
        signature.bind(*places)
        signature.bind(*needed, **names)
        signature.bind(*needed)
    except TypeError as error:
        return f"called as {declared.__name__}{inspect.signature(declared)}: {error}"
    return ""
