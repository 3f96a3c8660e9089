"""The kvassay caches of a batch, one a sequence, that go forward and back together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kvassay.errors import StateError
from kvassay.protocol import Cache


class Sequences:
    """`caches` has one cache a sequence: `cache` alone before anything was appended.

    A pass of the model appends the same tokens in every layer. It is marked, so that it can be
    taken back in part (drafts that a model did not confirm) or as a whole (a pass that was
    refused); `marks` says whether the backend offers that.
    """

    def __init__(self, cache: Cache, marks: bool) -> None:
        self.caches = [cache]
        self._marks = marks
        layers = self.caches[0].spec.layers
        nothing = torch.zeros((1, 0), dtype=torch.bool)
        self.real = [nothing] * layers
        """Of each layer (sequences, tokens): which are no padding."""
        self._before = list(self.real)
        self._asked: set[int] = set()
        self._marked = False
        self._open = False

    def start(self, layer: int, sequences: int, tokens: int) -> None:
        """Before tokens of a layer are appended; the second time for a layer begins a pass."""
        if sequences != len(self.caches):
            if any(real.shape[1] for real in self.real):
                raise StateError(
                    f"{sequences} sequences for a cache of {len(self.caches)}; reset it first"
                )
            self.select([0] * sequences)
        if layer in self._asked or not self._asked:
            self._begin(tokens)
        self._asked.add(layer)

    def _begin(self, tokens: int) -> None:
        self._commit()
        self._asked.clear()
        self._before = list(self.real)
        if self._marks:
            for cache in self.caches:
                cache.mark(tokens)
        self._marked = self._marks
        self._open = True

    def _commit(self) -> None:
        if self._marked:
            for cache in self.caches:
                cache.commit()
        self._marked = False

    def end(self) -> None:
        """The pass is over: all layers have its tokens."""
        self._open = False
        self._asked.clear()

    def take_back(self) -> None:
        """Undo the pass that is under way, in every layer; nothing where there is none."""
        if not self._open:
            return
        if self._marked:
            for cache in self.caches:
                cache.rollback(0)
            self._marked = False
        self.real = list(self._before)
        self.end()

    def drop(self, tokens: int) -> None:
        """Without the newest tokens of each sequence; TruncateError where the fp16 data that this
        needs exists only as codes."""
        kept = [real[:, : real.shape[1] - tokens] for real in self.real]
        for number, cache in enumerate(self.caches):
            gone = int(self.real[0][number].sum() - kept[0][number].sum())
            new = int(self.real[0][number].sum() - self._before[0][number].sum())
            if self._marked and gone <= new:
                cache.rollback(new - gone)
            else:
                if self._marked:
                    cache.commit()
                cache.truncate(cache.length - gone)
        self._marked = False
        self._asked.clear()
        self.real = kept

    def select(self, wanted: Sequence[int]) -> None:
        """Sequence i becomes what sequence `wanted[i]` was: kept once, forked if wanted again."""
        self._commit()
        used: set[int] = set()
        chosen = []
        for number in wanted:
            old = self.caches[number]
            chosen.append(old.fork() if number in used else old)
            used.add(number)
        for number, cache in enumerate(self.caches):
            if number not in used:
                cache.close()
        self.caches = chosen
        self.real = [real[list(wanted)] for real in self.real]
        self._asked.clear()

    def reset(self) -> None:
        """One empty sequence."""
        for cache in self.caches[1:]:
            cache.close()
        del self.caches[1:]
        self.caches[0].reset()
        self._marked = False
        self._asked.clear()
        self.real = [real[:1, :0] for real in self.real]

    def fork(self) -> Sequences:
        """A copy that goes its own way."""
        self._commit()
        copy: Sequences = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.caches = [cache.fork() for cache in self.caches]
        copy.real, copy._before = list(self.real), list(self._before)
        copy._asked = set()
        return copy

    def add(self, layer: int, new: Any) -> None:
        """Note which of the tokens just appended are no padding, (sequences, n)."""
        self.real[layer] = torch.cat([self.real[layer], new], dim=1)
