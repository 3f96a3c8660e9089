"""A class of somebody's own, named with its options in one text: `package.module:Class?bits=4`."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from ..errors import KvassayError, UnknownBackendError

#: What a cache claims to hold unless it says otherwise: the fp16 values that it stands in for.
FP16_BITS: Final = 16.0
_CLAIM: Final = "claimed-bits"


@dataclass(frozen=True)
class NamedClass:
    """Where a class is, what it is made with, and the bits a value that it claims to hold."""

    path: str
    options: Mapping[str, str]
    claimed_bits: float = FP16_BITS

    @classmethod
    def of_text(cls, text: str) -> NamedClass:
        """Read the text that `str` gives; KvassayError for what is none."""
        path, _, rest = text.partition("?")
        options = dict(parse_qsl(rest, keep_blank_values=True))
        claimed = options.pop(_CLAIM, str(FP16_BITS))
        return cls(checked_path(path), options, float(claimed))

    def __str__(self) -> str:
        told = {} if self.claimed_bits == FP16_BITS else {_CLAIM: f"{self.claimed_bits:g}"}
        query = urlencode({**self.options, **told})
        return f"{self.path}?{query}" if query else self.path

    @property
    def name(self) -> str:
        """The class without its module."""
        return self.path.rpartition(":")[2]

    def load(self) -> Any:
        """The class; UnknownBackendError where it cannot be imported."""
        module, _, attribute = self.path.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (Exception, SystemExit) as error:  # somebody's own module may raise anything
            said = f"cannot import {self.path!r}: {type(error).__name__}: {error}"
            raise UnknownBackendError(said) from error

    def make(self, known: Mapping[str, Any], option: str) -> Any:
        """An instance: its options, and of `known` what its parameters are named after.

        `option` is the command-line option that KvassayError names where a parameter is missing.
        """
        found = self.load()
        given = {name: value_of(text) for name, text in self.options.items()}
        parameters: Mapping[str, inspect.Parameter] = {}
        with suppress(TypeError, ValueError):  # compiled code may not tell
            parameters = inspect.signature(found).parameters
        filled = {name: known[name] for name in parameters if name in known}
        arguments = {**filled, **given}
        open_ends = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        missing = [
            name
            for name, one in parameters.items()
            if one.default is one.empty and one.kind not in open_ends and name not in arguments
        ]
        if missing:
            raise KvassayError(
                f"{self.path} needs {', '.join(missing)}: give {option} {missing[0]}=VALUE"
            )
        return found(**arguments)


def named(path: str, options: Iterable[str], option: str, claimed: float | None) -> NamedClass:
    """A class as the command line names it; KvassayError names the option that is wrong."""
    found: dict[str, str] = {}
    for one in options:
        key, equals, text = one.partition("=")
        if not (key.isidentifier() and equals):
            raise KvassayError(f"{option} {one!r}: give NAME=VALUE, a parameter of the class")
        found[key] = text
    bits = FP16_BITS if claimed is None else claimed
    if not 0 < bits <= 64:
        raise KvassayError(f"--claimed-bits {bits:g}: give bits a value, above 0 and at most 64")
    return NamedClass(checked_path(path), found, bits)


def checked_path(path: str) -> str:
    """`package.module:Class`, or KvassayError."""
    module, _, attribute = path.partition(":")
    parts = [*module.split("."), attribute]
    if not all(part.isidentifier() for part in parts):
        raise KvassayError(f"{path!r} names no class: give package.module:Class")
    return path


def value_of(text: str) -> Any:
    """A number, a truth value, None or a list as Python writes them, else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
