"""One case of parity: operations on a target's cache, each state compared with the reference's.

A case is plain data, so that it can be written to a file and replayed:

    {"spec": {...}, "inputs": "mixed", "seed": 3, "threads": 2, "ops": [["append", 5], ...]}

Operations: `append n` (next n tokens, every layer), `truncate n`, `fork` (go on with the fork),
`reset`, `take` (the target restores the reference's dump and goes on), `give` (the reference
restores the target's dump and goes on), `check [n, ...]` (compare pages, dump, scores, and
attention of the last n queries). The reference's state is made from the surviving tokens alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

import numpy as np

import kvassay
from kvassay.errors import SpanError, TruncateError
from kvassay.protocol import Backend, Cache, FloatArray

from ..common.inputs import queries, tokens
from . import locate
from .model import LayerModel
from .truth import Truth

Case = Mapping[str, Any]


@dataclass
class Result:
    """How many values were compared, how many differ, and the first that does.

    `error` and `size` are the summed squares of differences and of the reference's scores and
    outputs: what a backend that declares a bound is held to.
    """

    comparisons: int = 0
    mismatches: int = 0
    first: dict[str, Any] | None = None
    error: float = 0.0
    size: float = 0.0

    @property
    def relative_error(self) -> float:
        """Relative RMS of the differences of scores and outputs."""
        return math.sqrt(self.error / self.size) if self.size else math.sqrt(self.error)

    def add(self, other: Result) -> None:
        """Take another case's figures in."""
        self.comparisons += other.comparisons
        self.mismatches += other.mismatches
        self.first = self.first or other.first
        self.error += other.error
        self.size += other.size

    def note(self, differing: int, where: dict[str, Any]) -> None:
        """Count differing values; the first is kept."""
        self.mismatches += differing
        self.first = self.first or where


@dataclass
class Run:
    """A case under way. `held` are the numbers of the tokens that survive, in order."""

    target: Backend
    reference: Backend
    case: Case
    spec: kvassay.Spec = field(init=False)
    result: Result = field(default_factory=Result)
    held: list[int] = field(default_factory=list)
    used: int = 0
    step: int = 0
    parents: list[tuple[Cache, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec = kvassay.Spec.from_dict(self.case["spec"])
        count = sum(op[1] for op in self.case["ops"] if op[0] == "append")
        shape = (count, self.spec.kv_heads, self.spec.head_dim)
        self.inputs = [
            tokens(self.case["inputs"], 97 * self.case["seed"] + layer, *shape)
            for layer in range(self.spec.layers)
        ]
        self.cache = self.target.prepare(self.spec, threads=self.case["threads"])
        self.truth = Truth(self.reference, self.case, self.spec, self.inputs)
        self.models = [LayerModel(layer) for layer in self.spec.layer_specs]

    def run(self) -> Result:
        """All operations; every cache is closed at the end."""
        try:
            for step, (name, *arguments) in enumerate(self.case["ops"]):
                self.step = step
                getattr(self, f"do_{name}")(*arguments)
            if not self.result.mismatches:  # what a faulty target led to is of no use to others
                self.truth.share()
        finally:
            self.cache.close()
            self.truth.close()
            for parent, _ in self.parents:
                parent.close()
        return self.result

    def do_append(self, n: int) -> None:
        """The next n tokens, to every layer of the target."""
        wanted = list(range(self.used, self.used + n))
        self.used += n
        for layer, (k, v) in enumerate(self.inputs):
            self.cache.append(layer, k[wanted], v[wanted])
        for model in self.models:
            model.append(n)
        self.held += wanted

    def do_truncate(self, n: int) -> None:
        """Cut to n tokens, or be refused and unchanged, exactly as the life cycle says."""
        refusals = [model.truncate_refused(n) for model in self.models]
        before = self.cache.dump() if any(refusals) else b""
        raised = ""
        try:
            self.cache.truncate(n)
        except (TruncateError, SpanError) as error:
            raised = type(error).__name__
        self.result.comparisons += 1
        expected = {name for name in refusals if name} or {""}
        if raised not in expected:
            self._note(1, "truncate", to=n, expected=sorted(expected), found=raised)
        if raised:
            self._same_bytes("refused truncate", before, self.cache.dump())
            return
        self.held = self.held[:n]
        for model in self.models:
            model.truncate(n)

    def do_fork(self) -> None:
        """Go on with a fork; the parent must never change again."""
        self.parents.append((self.cache, self.cache.dump()))
        self.cache = self.cache.fork()

    def do_reset(self) -> None:
        """Back to empty, byte for byte."""
        self.cache.reset()
        self.held = []
        self.models = [LayerModel(layer) for layer in self.spec.layer_specs]

    def do_take(self) -> None:
        """The target goes on with what the reference wrote."""
        self.truth.follow(self.held)
        data = self.truth.cache.dump()
        self.cache.close()
        self.cache = self.target.restore(self.spec, data, threads=self.case["threads"])
        self._reload()
        self._same_bytes("dump of a restored dump", data, self.cache.dump())

    def do_give(self) -> None:
        """The reference goes on with what the target wrote."""
        data = self.cache.dump()
        self.truth.give(f"{self.step} given", data, self.held)
        truth = self.truth.value(f"{self.step} dump", data, methodcaller("dump"))
        self._same_bytes("dump of a restored dump", data, truth)

    def do_check(self, counts: list[int]) -> None:
        """Compare everything that can be read."""
        self.truth.follow(self.held)
        if self.target.exact:
            self._check_bytes()
        length = len(self.held)
        for layer, model in enumerate(self.models):
            if not length:
                break
            q = self._queries(layer, max(counts))
            self._check_scores(layer, q[-1])
            possible = [n for n in counts if n <= length]
            for n in possible:
                self._check_attend(layer, model, q[-max(possible) :], n)

    def _check_scores(self, layer: int, q: FloatArray) -> None:
        found = self.cache.scores(layer, q)
        truth = self.truth.value(
            f"{self.step} scores {layer}", found, methodcaller("scores", layer, q)
        )
        self._same_floats("scores", layer, ("head", "token"), truth, found)

    def _check_attend(self, layer: int, model: LayerModel, many: FloatArray, n: int) -> None:
        """Attention of the last n of the queries that this check has."""
        q = many[-n:]
        try:
            found = self.cache.attend(layer, q[0] if n == 1 else q).reshape(q.shape)
        except SpanError:
            self.result.comparisons += 1
            if not model.attend_refused(n):
                self._note(1, "attend", layer=layer, queries=n, found="SpanError")
            return
        if model.attend_refused(n):
            self._note(1, "attend", layer=layer, queries=n, expected="SpanError")
            return
        try:
            truth = self.truth.attended(f"{self.step} attend {layer}", found, layer, many)
        except SpanError:
            # The reference restored this state and so holds live pages only, the target still more:
            # there is nothing to compare with, and nothing is counted.
            return
        self._same_floats("attend", layer, ("query", "head", "channel"), truth, found)

    def _check_bytes(self) -> None:
        for layer in range(self.spec.layers):
            found = self.cache.pages(layer)
            truth = self.truth.value(
                f"{self.step} pages {layer}", found, methodcaller("pages", layer)
            )
            if len(truth) != len(found):
                self._note(1, "page count", layer=layer, expected=len(truth), found=len(found))
            for number, (mine, theirs) in enumerate(zip(truth, found, strict=False)):
                self.result.comparisons += len(mine)
                if mine != theirs:
                    where = locate.in_page(mine, theirs)
                    self._note(_differing(mine, theirs), layer=layer, page=number, **where)
        dump = self.cache.dump()
        whole = self.truth.value(f"{self.step} dump", dump, methodcaller("dump"))
        self._same_bytes("dump", whole, dump)
        for parent, before in self.parents:
            self._same_bytes("parent of a fork", before, parent.dump())

    def _same_bytes(self, what: str, truth: bytes, found: bytes) -> None:
        self.result.comparisons += len(truth)
        if truth != found:
            where = locate.in_dump(truth, found)
            self._note(_differing(truth, found), what, where=where)

    def _same_floats(
        self, what: str, layer: int, names: tuple[str, ...], truth: FloatArray, found: FloatArray
    ) -> None:
        self.result.comparisons += truth.size
        differing = truth.size
        if truth.shape == found.shape:
            differing = int(np.sum(truth.view(np.uint32) != found.view(np.uint32)))
            if not self.target.exact:
                self._measure(truth, found)
        if differing:
            self._note(differing, what, layer=layer, **locate.in_array(names, truth, found))

    def _measure(self, truth: FloatArray, found: FloatArray) -> None:
        finite = np.isfinite(truth)
        difference = found[finite].astype(np.float64) - truth[finite]
        self.result.error += float(difference @ difference)
        self.result.size += float(np.sum(truth[finite].astype(np.float64) ** 2))

    def _note(self, differing: int, stage: str = "", /, **where: Any) -> None:
        tokens_held = len(self.held)
        self.result.note(
            differing, {"stage": stage, "op": self.step, "tokens": tokens_held, **where}
        )

    def _queries(self, layer: int, n: int) -> FloatArray:
        seed = 1000 * self.case["seed"] + len(self.held)
        return queries(seed + 7 * layer, n, self.spec.query_heads, self.spec.head_dim)

    def _reload(self) -> None:
        for model in self.models:
            model.reload()


def _differing(truth: bytes, found: bytes) -> int:
    shared = min(len(truth), len(found))
    mine, theirs = (np.frombuffer(data, np.uint8, shared) for data in (truth, found))
    return int(np.sum(mine != theirs)) + abs(len(truth) - len(found))


def run_case(target: Backend, reference: Backend, case: Case) -> Result:
    """Run one case."""
    return Run(target, reference, case).run()
