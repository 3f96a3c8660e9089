"""SpinQuant: Liu and others, arXiv 2405.16406, section 3.

QuaRot's grid with a rotation learnt on data by Cayley SGD on the Stiefel manifold (their equation
4). The published loss is the network's; here it is that of the tensor alone: the expected squared
error of rounding, which for a uniform grid is proportional to the squared range of each group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import minmax
from .base import F32, F64, Held
from .quarot import CLIP, GROUP, QuaRot
from .rotations import rotation

#: Vectors that a step looks at.
_BATCH = 1024


class SpinQuant(QuaRot):
    """As QuaRot; the learnt rotation, fp16 (heads, d, d), is held as a fitted part.

    steps: of gradient descent; each looks at up to 1024 vectors a head.
    """

    paper = "arXiv 2405.16406, section 3"
    granularity = "128 channels"
    claim = "4 bits everywhere: 2.9 points of accuracy lost on LLaMA-2 7B"
    learns = True

    def __init__(self, *, steps: int = 100, clip: float = CLIP, **common: Any) -> None:
        super().__init__(clip=clip, **common)
        self.steps = self._integer("steps", steps, 1, 10000)

    def _learn(self, x: F32) -> Held:
        start = rotation(self.rotation, self.head_dim, self.seed).astype(np.float64)
        learnt = [self._descend(start, head.astype(np.float64)) for head in x]
        return {"rotations": np.stack(learnt).astype(np.float16)}

    def _descend(self, matrix: F64, x: F64) -> F64:
        """The best rotation met on the way, by the loss over all of x."""
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((0x5350, self.seed))))
        best, least = matrix, range_loss(x @ matrix.T)[0]
        for step in range(self.steps):
            rows = x if len(x) <= _BATCH else x[random.choice(len(x), _BATCH, replace=False)]
            loss, slope = range_loss(rows @ matrix.T)
            gradient = slope.T @ rows / loss
            rate = 0.5 * (1 - step / self.steps)
            matrix = cayley(matrix, gradient, rate)
            if (reached := range_loss(x @ matrix.T)[0]) < least:
                best, least = matrix, reached
        return best

    def _matrix(self) -> F32:
        """(heads, d, d); orthogonal up to the rounding of fp16, so that R' is close to R^-1."""
        if self._fitted is None:  # asked for by the constructor's checks alone
            return super()._matrix()
        return self._learnt("rotations").astype(np.float32)

    def _pack(self, x: F32) -> Held:
        y = x @ self._matrix().swapaxes(1, 2)
        return minmax.encode_tokens(y, int(self.bits), GROUP, self.clip)


def range_loss(y: F64) -> tuple[float, F64]:
    """Mean squared range of the groups of rows y, and its gradient."""
    slope = np.zeros_like(y)
    loss = 0.0
    rows = np.arange(len(y))
    for start in range(0, y.shape[1], GROUP):
        part = y[:, start : start + GROUP]
        high, low = part.argmax(axis=1), part.argmin(axis=1)
        span = part[rows, high] - part[rows, low]
        loss += float(np.mean(span**2))
        slope[rows, start + high] += 2 * span / len(y)
        slope[rows, start + low] -= 2 * span / len(y)
    return max(loss, 1e-30), slope


def cayley(matrix: F64, gradient: F64, rate: float) -> F64:
    """One step along the manifold: (I + a/2 W)^-1 (I - a/2 W) R with skew W (equation 4)."""
    product = gradient @ matrix.T
    skew = product - product.T
    half = rate / 2 / max(1.0, float(np.linalg.norm(skew, 2))) * skew
    eye = np.eye(len(matrix))
    return np.asarray(np.linalg.solve(eye + half, (eye - half) @ matrix))
