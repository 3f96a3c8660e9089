"""A `transformers` cache that keeps keys and values in a kvassay cache, and attends there.

transformers hands new keys and values to `Cache.update`, and what that returns to the attention
function. Nothing is decoded here: `update` appends to the kvassay cache, and the attention function
registered under the name `kvassay` asks it for the result.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
import transformers
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

import kvassay
from kvassay.errors import StateError, UnsupportedError
from kvassay.hf.profile import fitted_spec
from kvassay.hf.shape import shape_of
from kvassay.presets import preset as make_preset
from kvassay.protocol import Cache, FloatArray

ATTENTION: Final = "kvassay"
#: The attribute of a key tensor that leads the attention function to the cache.
_OWNER: Final = "_kvassay_layer"


class KvassayCache(transformers.Cache):  # type: ignore[misc]
    """The cache of one sequence, for `model.generate(..., cache=cache)`.

    Any registered backend, or `module:Class`, and any preset or, by name or file, a profile of
    this model (IdentityError for one of another); keyword arguments change their fields.
    `cache.kvassay` is the kvassay cache: bytes, dumps, pages. Creating one makes the model attend
    through kvassay. Raises UnsupportedError for models with sliding windows, and later for
    batches, padding and beam search.
    """

    def __init__(
        self,
        model: Any,
        preset: str = "turbo",
        backend: str = "native",
        variant: str | None = None,
        threads: int = 1,
        profile: str | None = None,
        **fields: Any,
    ) -> None:
        if profile is None:
            spec = make_preset(preset, **{**shape_of(model.config), **fields})
        else:
            spec = fitted_spec(model, profile, fields)
        self.kvassay: Cache = kvassay.load(backend, variant).prepare(spec, threads)
        super().__init__(layers=[_Layer(self.kvassay, n) for n in range(spec.layers)])
        model.set_attn_implementation(ATTENTION)

    def reset(self) -> None:
        """Back to empty."""
        self.kvassay.reset()
        for layer in self.layers:
            layer.waiting = False

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the newest tokens, as many as the negative number says; raises TruncateError where
        the fp16 data this needs exists only as codes."""
        self.kvassay.truncate(self.kvassay.length - abs(tokens_to_remove))

    def reorder_cache(self, beam_idx: Any) -> None:
        """Refused unless nothing moves."""
        _one_sequence(beam_idx.tolist() == [0])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refused unless nothing is repeated."""
        _one_sequence(repeats == 1)

    def batch_select_indices(self, indices: Any) -> None:
        """Refused unless the one sequence is selected."""
        _one_sequence(indices.tolist() == [0])


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of a kvassay cache, as transformers wants to see it."""

    is_sliding = False
    is_croppable = True
    supports_early_init = False

    def __init__(self, cache: Cache, index: int) -> None:
        super().__init__()
        self._cache = cache
        self._index = index
        self.waiting = False
        """Tokens were appended that no attention has asked for yet."""

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Nothing: the kvassay cache exists already."""

    def update(
        self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Append (1, kv_heads, tokens, head_dim); the result leads the attention here."""
        _one_sequence(key_states.shape[0] == 1)
        if self.waiting:
            raise StateError(
                f"layer {self._index}: attention over the last tokens did not go through kvassay; "
                f"call model.set_attn_implementation({ATTENTION!r})"
            )
        self._cache.append(self._index, _rows(key_states), _rows(value_states))
        self.waiting = True
        setattr(key_states, _OWNER, self)
        return key_states, value_states

    def attend(self, query: Any, scaling: float | None) -> Any:
        """Attention of (1, query_heads, n, head_dim) over the newest n tokens: (1, n, heads, d)."""
        expected = self._cache.spec.effective_softmax_scale
        if scaling is not None and float(np.float32(scaling)) != expected:
            raise UnsupportedError(
                f"layer {self._index} scales by {scaling}, the cache by {expected}; give it "
                f"softmax_scale={scaling}"
            )
        out = self._cache.attend(self._index, _rows(query))
        self.waiting = False
        return torch.from_numpy(out).unsqueeze(0).to(query.device, query.dtype)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Tokens after these queries, and where they begin."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens appended to this layer."""
        return self._cache.lengths[self._index]

    def get_max_length(self) -> int:
        """None."""
        return -1


def attend(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Any, None]:
    """The attention function `kvassay` of transformers: (1, n, query_heads, head_dim)."""
    layer = getattr(key, _OWNER, None)
    if layer is None:
        raise StateError("attention `kvassay` without a KvassayCache: pass cache=cache")
    if attention_mask is not None:
        raise UnsupportedError("padding, or a mask of one's own: a KvassayCache holds one sequence")
    asked = [name for name in ("softcap", "sliding_window", "s_aux") if options.get(name)]
    if dropout or asked:
        raise UnsupportedError(f"attention with {', '.join(asked or ['dropout'])}")
    return layer.attend(query, scaling), None


def _rows(states: Any) -> FloatArray:
    """(1, heads, tokens, head_dim) as float32 (tokens, heads, head_dim)."""
    rows: FloatArray = (
        states.detach()[0].transpose(0, 1).to("cpu", torch.float32).contiguous().numpy()
    )
    return rows


def _one_sequence(true: bool) -> None:
    if not true:
        raise UnsupportedError("a KvassayCache holds one sequence: no batches, no beam search")


transformers.AttentionInterface.register(ATTENTION, attend)
# Flash attention's: a mask only where tokens are padding.
AttentionMaskInterface.register(ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
