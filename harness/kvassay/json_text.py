"""JSON from outside, read such that it means one thing: no key twice, no NaN, no depth without end.

Python's reader takes the last of two equal keys, takes `NaN`, which JSON has not, and text that no
file can hold; what passes here can be written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

#: Levels of nesting; ours need five.
DEEPEST: Final = 64


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text, bytes being UTF-8; raises ValueError saying what is wrong."""
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"not text in UTF-8: {error}") from None
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from None
    _check_depth(value)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair, which is no character") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; it is written as text")


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [item for one in level for item in _items(one)]
        if not level:
            return
    raise ValueError(f"nested deeper than {DEEPEST} levels")


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
