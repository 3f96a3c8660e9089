"""The ways a case feeds a cache: chunkings, truncations, forks, restores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import kvassay

Op = list[Any]
#: Pages a chunk of the fold has (docs/numeric-contract.md, section 10); long cases go past it.
CHUNK: Final = 16


def _marks(spec: kvassay.Spec) -> tuple[int, int, int]:
    """Lengths around the first layer's first two seals: none sealed, one sealed, two sealed."""
    layer = spec.layer(0)
    first = layer.sinks + layer.window + layer.page_tokens
    return first - 1, first + 1, first + layer.page_tokens


#: Queries at once: one, a few, and enough to reach into pages sealed before the newest.
_MANY: Final = ["check", [1, 5, 23]]


def one_append(spec: kvassay.Spec) -> list[Op]:
    """Everything at once."""
    last = _marks(spec)[2]
    return [["append", last + 3], _MANY]


def one_then_rest(spec: kvassay.Spec) -> list[Op]:
    """A first token, then up to just before, just after a seal, and on."""
    before, after, last = _marks(spec)
    check = ["check", [1, 5]]
    return [
        *(["append", 1], check, ["append", before - 1], check),
        *(["append", after - before], check, ["append", last - after], _MANY),
    ]


def singles(spec: kvassay.Spec) -> list[Op]:
    """Token by token, as decoding does; the prompt at once where it is long."""
    before, _, last = _marks(spec)
    prompt = max(0, before - 20)
    steps = [["append", 1] for _ in range(last - prompt)]
    return [*([["append", prompt]] if prompt else []), *steps, _MANY]


def mixed(spec: kvassay.Spec) -> list[Op]:
    """Chunks of 3, 5, 9, 17, ... until two pages are sealed."""
    last = _marks(spec)[2]
    ops: list[Op] = []
    size, done = 3, 0
    while done < last:
        size = min(size, last - done)
        ops += [["append", size]]
        done += size
        size = 2 * size - 1
    return [*ops, ["check", [1, 5]], ["append", spec.page_tokens - 1], _MANY]


def lifecycle(spec: kvassay.Spec) -> list[Op]:
    """Truncations allowed and refused, a fork, a reset, and the tokens that come after each."""
    before, after, last = _marks(spec)
    check = ["check", [1, 5]]
    sinks, page = spec.sinks, spec.page_tokens
    return [
        *(["append", last + 2], ["truncate", last + 1], ["truncate", last], check),
        *(["truncate", after], ["append", 3], ["fork"], ["append", page + 2], check),
        *(["truncate", sinks + page], check, ["append", 5], ["truncate", before]),
        *(["truncate", sinks], ["append", after], _MANY),
        *(["truncate", 0], ["append", 2], check, ["reset"], ["append", after], _MANY),
    ]


def cross_read(spec: kvassay.Spec) -> list[Op]:
    """Each side restores what the other wrote, and goes on with it."""
    _, after, last = _marks(spec)
    check = ["check", [1, 5]]
    return [
        *(["append", after], ["give"], check, ["append", last - after], check),
        *(["take"], check, ["append", spec.page_tokens + 1], check),
        *(["truncate", spec.sinks], ["take"], ["append", 2], check, ["give"], check),
    ]


def long(spec: kvassay.Spec) -> list[Op]:
    """More pages than one chunk of the fold holds, in two appends."""
    layer = spec.layer(0)
    tokens = layer.sinks + layer.window + (CHUNK + 2) * layer.page_tokens
    return [["append", tokens - 7], ["check", [1]], ["append", 9], ["check", [1, 5]]]


def one_page(spec: kvassay.Spec) -> list[Op]:
    """As few tokens as seal a page."""
    after = _marks(spec)[1]
    return [["append", after - 1], ["check", [1, 5, 16]]]


#: The plan of single pages, and the one whose records speak for reading other backends' pages.
ONE_PAGE: Final = "one page"
CROSS: Final = "cross read"

PLANS: Final[dict[str, Callable[[kvassay.Spec], list[Op]]]] = {
    "one append": one_append,
    "one then rest": one_then_rest,
    "singles": singles,
    "mixed": mixed,
    "lifecycle": lifecycle,
    CROSS: cross_read,
    "long": long,
    ONE_PAGE: one_page,
}
