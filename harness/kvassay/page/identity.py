"""Which field of two identity texts differs: what a refused restore names."""

from __future__ import annotations

import json
from typing import Any

from ..errors import IdentityError, PageError


def first_difference(expected_text: str, found_text: str) -> tuple[str, str, str] | None:
    """The first differing field (dotted where nested) with its expected and found value as JSON, or
    None.

    Fields are compared in the order of the text, which is sorted. A field that one side lacks reads
    "missing". Raises ValueError where a text is not a JSON object.
    """
    expected, found = json.loads(expected_text), json.loads(found_text)
    if not isinstance(expected, dict) or not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return _difference("", expected, found)


def check_text(expected_text: str, found: bytes) -> None:
    """Refuse the identity text of a sound dump that another cache wrote.

    Raises IdentityError naming the first differing field, PageError where it is no such text.
    """
    try:
        text = found.decode()
        difference = first_difference(expected_text, text)
    except (ValueError, RecursionError) as error:
        raise PageError(f"dump: the identity text cannot be read: {error}") from None
    if difference is not None:
        field, expected, other = difference
        raise IdentityError(
            f"dump: {field} is {other}, this cache has {expected}; restore with the spec it was "
            f"made with",
            field=field,
        )
    if text != expected_text:
        raise PageError("dump: the identity text is not in canonical form")


def _difference(
    prefix: str, expected: dict[str, Any], found: dict[str, Any]
) -> tuple[str, str, str] | None:
    for name in sorted(expected.keys() | found.keys()):
        sides = [_side(data, name) for data in (expected, found)]
        if sides[0] == sides[1]:
            continue
        want, have = expected.get(name), found.get(name)
        if isinstance(want, dict) and isinstance(have, dict):
            return _difference(f"{prefix}{name}.", want, have)
        return f"{prefix}{name}", sides[0], sides[1]
    return None


def _side(data: dict[str, Any], name: str) -> str:
    return json.dumps(data[name], sort_keys=True) if name in data else "missing"
