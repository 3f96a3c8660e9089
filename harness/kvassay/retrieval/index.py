"""The index: vectors kept as codes, searched by inner product or cosine."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from ..errors import InputError, StateError
from . import calibration, exact
from .calibration import Calibration
from .checks import bad_scales, check_ids, check_mask, check_number, check_vectors
from .code import LARGEST_ID, VectorCode
from .file import Content, read_index, write_index
from .protocol import F32, U8, Affine, Rows, Scorer
from .scorers import load_scorer
from .store import Growing, Store

METRICS: Final = ("ip", "cosine")
#: Bytes of the float64 copies that an exact re-rank makes at a time.
_RERANK_BYTES: Final = 1 << 24


class Index:
    """Vectors of `dim` float32 components as codes of 2, 3 or 4 bits and one scale each.

    metric: "ip", inner product, or "cosine". keep_vectors: keep the float32 vectors too, for exact
    re-ranks. backend, variant: who computes (`kvassay.retrieval.scorers()`); results do not depend
    on it. seed: of the rotation. Raises InputError, UnknownBackendError, UnavailableError.

    State depends only on the vectors held, in the order they were added. A failed call changes
    nothing. Threads may search at once; while one changes the index, no other may use it.
    """

    def __init__(
        self,
        dim: int,
        bits: int,
        keep_vectors: bool = False,
        backend: str = "native",
        *,
        variant: str | None = None,
        metric: str = "ip",
        seed: int = 0,
    ) -> None:
        if metric not in METRICS:
            raise InputError(f"metric: {metric!r} is not one of {', '.join(METRICS)}")
        self.code = VectorCode(dim, bits, seed)
        self.metric = metric
        self.scorer: Scorer = load_scorer(backend, variant)
        self.calibration: Calibration | None = None
        self._store = Store(self.code)
        self._vectors = Growing(np.zeros((0, dim), np.float32)) if keep_vectors else None
        #: None: vector i has id i.
        self._ids: Growing | None = None
        self._next_id = 0

    def __len__(self) -> int:
        return self._store.count

    @property
    def ids(self) -> Rows:
        """Ids in row order, int64 (n,)."""
        return np.arange(len(self)) if self._ids is None else self._ids.view.copy()

    @property
    def vectors(self) -> F32 | None:
        """The float32 vectors (n, dim), read-only, or None where they are not kept."""
        if self._vectors is None:
            return None
        view = self._vectors.view.view()
        view.flags.writeable = False
        return view

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held by part: codes, scales, ids, vectors, calibration; spare room counted."""
        affine = self._affine
        return {
            **self._store.nbytes,
            "ids": self._ids.nbytes if self._ids else 0,
            "vectors": self._vectors.nbytes if self._vectors else 0,
            "calibration": affine.nbytes if affine else 0,
        }

    def calibrate(self, sample: Any, kind: str = "outer") -> Calibration:
        """Fit a shift and a gain for each rotated channel to sample (n, dim), and freeze them.

        kind: "mean" takes off what all vectors have in common; "outer" and "5-95" put two quantiles
        of each channel onto the outer centroids.

        Only while the index is empty, and once: codes made before would mean something else.
        Raises StateError; InputError for too few or degenerate samples.
        """
        if self.calibration is not None:
            raise StateError("calibrate: this index is calibrated already; make another")
        if len(self):
            raise StateError(f"calibrate: this index holds {len(self)} vectors; calibrate first")
        rows = check_vectors("calibrate: sample", sample, self.code.dim)
        self.calibration = calibration.fit(self.code, self.scorer, self._prepared(rows), kind)
        return self.calibration

    def add(self, x: Any, ids: Any = None) -> Rows:
        """Add the rows of x, float32 (n, dim); return their ids, int64 (n,).

        ids: unique whole numbers that are not in the index; None: numbers that were never used,
        counting from 0. Raises InputError.
        """
        rows = check_vectors("add: x", x, self.code.dim)
        new = self._new_ids(ids, len(rows))
        if not len(rows):
            return new
        codes, scales = self.scorer.encode(self.code, self._affine, self._prepared(rows))
        self._check_scales(scales)
        plain = self._ids is None and bool((new == len(self) + np.arange(len(new))).all())
        own = None if plain else self._ids or Growing(self.ids)
        self._store.append(codes, scales)
        if self._vectors is not None:
            self._vectors.append(rows)
        if own is not None:
            own.append(new)
        self._ids = own
        self._next_id = max(self._next_id, int(new.max()) + 1)
        return new

    def remove(self, ids: Any) -> None:
        """Remove the vectors of these ids. Raises InputError for an id that is not held."""
        gone = check_ids("remove: ids", ids)
        held = self.ids
        missing = ~np.isin(gone, held)
        if missing.any():
            raise InputError(f"remove: id {gone[missing][0]} is not in the index")
        if not len(gone):
            return
        kept = ~np.isin(held, gone)
        self._store.keep(kept)
        if self._vectors is not None:
            self._vectors.keep(kept)
        self._ids = Growing(held[kept])

    def search(self, q: Any, k: int, rerank: int = 0, mask: Any = None) -> tuple[F32, Rows]:
        """The k best vectors for each row of q, float32 (m, dim): scores and ids, both (m, w).

        w is k, or fewer where the index, or the mask, holds fewer. Best first; equal scores in row
        order. rerank: take that many best by code and score them exactly from the vectors kept.
        mask: bool (n,), one entry for each of `ids`, true where a vector may be found.
        Raises InputError; StateError for a re-rank without vectors.
        """
        queries = check_vectors("search: q", q, self.code.dim)
        k = check_number("search: k", k, 1)
        rerank = check_number("search: rerank", rerank, 0)
        if rerank and rerank < k:
            raise InputError(f"search: rerank {rerank} is less than k {k}; give 0 or at least k")
        if rerank and self._vectors is None:
            raise StateError("search: nothing to re-rank by; make the index with keep_vectors=True")
        allowed = check_mask(mask, len(self))
        available = len(self) if allowed is None else int(np.count_nonzero(allowed))
        wanted = min(rerank or k, available)
        if not wanted or not len(queries):
            empty = (len(queries), min(k, available))
            return np.zeros(empty, np.float32), np.zeros(empty, np.int64)
        scores, rows = self._by_code(queries, wanted, allowed)
        if rerank:
            scores, rows = self._exactly(queries, rows)
            scores, rows = scores[:, :k], rows[:, :k]
        return scores, rows if self._ids is None else self._ids.view[rows]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file, whole or not at all (docs/retrieval.md). Raises WriteError."""
        content = Content(
            code=self.code,
            cosine=self.metric == "cosine",
            calibration=self.calibration,
            stored=self._store.stored,
            ids=None if self._ids is None else self._ids.view,
            vectors=None if self._vectors is None else self._vectors.view,
            next_id=self._next_id,
        )
        write_index(path, content)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        backend: str = "native",
        *,
        variant: str | None = None,
    ) -> Index:
        """The index of a file that `save` wrote, mapped: nothing is copied before it is changed.

        Every byte is checked. Raises PageError for a file that is damaged, or is none.
        """
        content = read_index(path)
        code, metric = content.code, "cosine" if content.cosine else "ip"
        how: dict[str, Any] = {"variant": variant, "metric": metric, "seed": code.seed}
        index = cls(code.dim, code.bits, False, backend, **how)
        index.calibration = content.calibration
        index._store = Store(code, content.stored)
        index._ids = None if content.ids is None else Growing(content.ids)
        index._vectors = None if content.vectors is None else Growing(content.vectors)
        index._next_id = content.next_id
        return index

    @property
    def _affine(self) -> Affine | None:
        return self.calibration.affine if self.calibration else None

    def _prepared(self, rows: F32) -> F32:
        return exact.unit_rows(rows) if self.metric == "cosine" else rows

    def _new_ids(self, ids: Any, count: int) -> Rows:
        if ids is None:
            if count > LARGEST_ID + 1 - self._next_id:
                raise InputError(
                    f"add: the next id is {self._next_id}; {count} more are beyond 2^62 - 1, the "
                    f"largest: give ids"
                )
            return self._next_id + np.arange(count)
        new = check_ids("add: ids", ids, count)
        twice = np.isin(new, self.ids)
        if twice.any():
            raise InputError(f"add: id {new[twice][0]} is in the index; remove it first")
        return new

    def _check_scales(self, scales: F32) -> None:
        bad = bad_scales(scales)
        if bad.any():
            raise InputError(
                f"add: x: row {int(np.argmax(bad))} points away from everything the calibration "
                f"can express; calibrate with a sample that is like the data"
            )

    def _by_code(self, queries: F32, wanted: int, allowed: U8 | None) -> tuple[F32, Rows]:
        prepared = self._prepared(queries)
        return self.scorer.search(
            self.code, self._affine, self._store.stored, prepared, wanted, allowed
        )

    def _exactly(self, queries: F32, rows: Rows) -> tuple[F32, Rows]:
        """Candidates (m, r) by their exact scores."""
        assert self._vectors is not None
        scores = np.empty(rows.shape, np.float32)
        step = max(1, _RERANK_BYTES // (8 * rows.shape[1] * self.code.dim))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            scores[part] = self._exact_scores(queries[part], self._vectors.view[rows[part]])
        order = np.lexsort((rows, -scores), axis=1)
        return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)

    def _exact_scores(self, queries: F32, candidates: F32) -> F32:
        dots = exact.dots(queries[:, np.newaxis], candidates)
        if self.metric == "cosine":
            size = exact.norms(queries)[:, np.newaxis] * exact.norms(candidates)
            dots /= np.where(size == 0, 1.0, size)
        return dots.astype(np.float32)
