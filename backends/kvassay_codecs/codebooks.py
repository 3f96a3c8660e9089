"""Lloyd-Max codebooks: scalar quantizers of least mean squared error for a known density.

Lloyd 1982, Max 1960. Exact cell integrals for the normal distribution and for the marginal of a
uniform unit vector; a fine grid for the angles of PolarQuant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import beta as betafn
from scipy.special import betainc, betaincinv, ndtr, ndtri

from .base import F32, F64, U8

#: From edges of cells to (mass, first moment) below each edge.
Cumulative = Callable[[F64], tuple[F64, F64]]


@lru_cache
def gaussian(bits: int) -> tuple[F64, float]:
    """Centroids of N(0, 1), increasing, and their mean squared error."""
    # Quantiles of density^(1/3), the best spacing of many levels (Panter and Dite 1951).
    return _lloyd(_normal, np.asarray(math.sqrt(3) * ndtri(_middles(bits)), np.float64))


@lru_cache
def beta(bits: int, d: int) -> tuple[F64, float]:
    """The same for sqrt(d) times a coordinate of a uniform unit vector of d dimensions.

    Its density is that of arXiv 2504.19874, Lemma 1, (1 - u^2)^((d-3)/2) up to a factor.
    """
    half, third = (d - 1) / 2, (d + 3) / 6
    scale = math.sqrt(d)
    peak = 2.0 ** (2 - d) / betafn(half, half)

    def cumulative(edges: F64) -> tuple[F64, F64]:
        u = np.clip(edges / scale, -1, 1)
        first = -peak / (d - 1) * (1 - u**2) ** ((d - 1) / 2)
        return np.asarray(betainc(half, half, (1 + u) / 2)), np.asarray(first * scale)

    start = (2 * betaincinv(third, third, _middles(bits)) - 1) * scale
    return _lloyd(cumulative, np.asarray(start, np.float64))


@lru_cache
def on_grid(density: Callable[[F64], F64], low: float, high: float, bits: int) -> F64:
    """Centroids of a density on [low, high], by sums over a fine grid."""
    points = np.linspace(low, high, 1 << 16)
    return _weighted(points, density(points), bits)


def of_samples(samples: F32, low: float, high: float, bits: int) -> F64:
    """Centroids of numbers in [low, high]: k-means in one dimension, on a fine histogram. Where
    there are none, all numbers of the range weigh alike."""
    weight, edges = np.histogram(samples, bins=1 << 14, range=(low, high))
    if not weight.any():
        weight[:] = 1
    return _weighted((edges[1:] + edges[:-1]) / 2, weight.astype(np.float64), bits)


def _weighted(points: F64, weight: F64, bits: int) -> F64:
    """Centroids of weighted points, which increase."""
    mass, moment = np.cumsum(weight), np.cumsum(weight * points)

    def cumulative(edges: F64) -> tuple[F64, F64]:
        at = np.searchsorted(points, edges)
        below, first = (np.concatenate(([0.0], t / mass[-1]))[at] for t in (mass, moment))
        return below, first

    start = np.interp(_middles(bits), mass / mass[-1], points)
    return _lloyd(cumulative, start)[0]


def nearest(y: F32, centroids: F64) -> U8:
    """The index of the nearest centroid of each number."""
    edges = ((centroids[1:] + centroids[:-1]) / 2).astype(np.float32)
    return np.searchsorted(edges, y).astype(np.uint8)


def _middles(bits: int) -> F64:
    levels = 1 << bits
    return np.asarray((np.arange(levels) + 0.5) / levels)


def _normal(edges: F64) -> tuple[F64, F64]:
    return np.asarray(ndtr(edges)), -np.exp(-(edges**2) / 2) / np.sqrt(2 * np.pi)


def _lloyd(cumulative: Cumulative, centroids: F64) -> tuple[F64, float]:
    """Fixed point of Lloyd's iteration for a density of unit variance and mean 0."""
    for _ in range(20000):
        edges = np.concatenate(([-np.inf], (centroids[1:] + centroids[:-1]) / 2, [np.inf]))
        mass, moment = (np.diff(part) for part in cumulative(edges))
        moved = np.where(mass > 0, moment / np.where(mass > 0, mass, 1), centroids)
        done = np.abs(moved - centroids).max() < 1e-9
        centroids = moved
        if done:
            break
    return centroids, float(1 - np.sum(mass * centroids**2))
