"""Which shapes of the suite a format has: what it refuses is listed in the verdict."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from kvassay.backend.own_formats import OwnFormatBackend
from kvassay.errors import SpecError, UnsupportedError
from kvassay.records import Record
from kvassay.spec import Spec
from kvassay.vector_codec import codec

from ..quality.measured import Origin


@dataclass(frozen=True)
class Refusal:
    """Why a format lacks a shape; `silent` where nobody was told before."""

    reason: str
    silent: bool


def shape_of(query_heads: int, kv_heads: int, head_dim: int) -> Spec:
    """One layer of these heads."""
    return Spec(layers=1, query_heads=query_heads, kv_heads=kv_heads, head_dim=head_dim)


def refusal(backend: OwnFormatBackend, name: str, shape: Spec) -> Refusal | None:
    """Why that format lacks the shape, None where it has it.

    Its backend may say so, with a reason, or one of its codecs; a cache that is refused after both
    said nothing, and a refusal without a reason, are silent.
    """
    said = backend.supports_own(name, shape)
    if not said:
        return Refusal(said.reason or "no reason given", silent=not said.reason)
    format_ = backend.formats[name]
    try:
        if format_.keys:  # else nothing is declared
            codec(format_.keys, head_dim=shape.head_dim, role="key")
            codec(format_.values, head_dim=shape.head_dim, role="value")
    except SpecError as error:
        return Refusal(str(error), silent=False)
    try:
        with closing(backend.prepare_own(name, shape)):
            return None
    except UnsupportedError as error:
        return Refusal(f"supports_own has it, prepare_own refuses: {error}", silent=True)


def shape_record(origin: Origin, shape: Spec, refused: Refusal | None) -> Record:
    """1 for a shape that is refused in silence; the reason of any refusal in the detail."""
    subject = f"{shape.query_heads} / {shape.kv_heads} heads, d {shape.head_dim}"
    silent = bool(refused and refused.silent)
    detail = {"head_dim": shape.head_dim, "refused": refused.reason} if refused else {}
    return origin.record("shapes_refused", silent, "shapes", 1, subject, **detail)
