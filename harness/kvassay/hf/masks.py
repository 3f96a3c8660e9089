"""What a model's mask lets each token attend, held against what a cache will compute.

A cache attends causally, within a span where the layer has one, and skips padding in front. Any
other mask (chunks, blocks that see each other, a bias) is refused at the first pass that has it.
"""

from __future__ import annotations

from typing import Any

import torch

from kvassay.errors import UnsupportedError


def real_tokens(mask: Any, before: Any, n: int, span: int, layer: int) -> Any:
    """Which of the n newest tokens of each sequence are no padding: bool (sequences, n).

    `mask` is (sequences, 1, n, tokens) of bool, or of float with 0 and the lowest number, and None
    for causal attention without padding; `before` says the same of the older tokens, (sequences,
    tokens - n). UnsupportedError where the mask is another one than the cache's.
    """
    sequences, old = before.shape
    if mask is None:
        return torch.ones((sequences, n), dtype=torch.bool)
    seen = _as_bool(mask, layer)[..., : old + n]
    if seen.ndim != 4 or seen.shape[-2:] != (n, old + n) or seen.shape[1] != 1:
        raise UnsupportedError(f"layer {layer}: a mask of shape {tuple(mask.shape)}")
    seen = seen[:, 0].expand(sequences, n, old + n)
    place = torch.arange(n)
    new = seen[:, place, old + place]
    real = torch.cat([before, new], dim=1)
    begun = real.int().cummax(dim=1).values.bool()
    if not torch.equal(begun, real):
        raise UnsupportedError(f"layer {layer}: padding behind a token; pad on the left")
    queries, keys = old + place[:, None], torch.arange(old + n)[None, :]
    causal = (keys <= queries) & (keys > queries - span if span else keys >= 0)
    expected = causal & real[:, None, :]
    if not torch.equal(expected & new[:, :, None], seen & new[:, :, None]):
        wanted = f"a span of {span} tokens" if span else "plain causal attention"
        raise UnsupportedError(
            f"layer {layer}: a mask that is not {wanted}: chunks, blocks, a prefix or a mask of "
            f"one's own"
        )
    return new


def _as_bool(mask: Any, layer: int) -> Any:
    mask = mask.detach().cpu()
    if mask.dtype == torch.bool:
        return mask
    lowest = torch.finfo(mask.dtype).min if mask.is_floating_point() else 0
    seen = mask > lowest / 2
    if not mask.is_floating_point() or bool((mask[seen] != 0).any()):
        raise UnsupportedError(f"layer {layer}: a bias that is added to logits")
    return seen
