"""A `transformers` cache that keeps keys and values in kvassay caches, and attends there.

transformers hands new keys and values to `Cache.update`, and what that returns to the attention
function. Nothing is decoded here: `update` holds them until the attention function registered as
`kvassay`, which is told of padding too, appends them to a kvassay cache and asks it for the result.
A pass that does not end there is an error, so that nothing runs in full precision unseen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Never

import numpy as np
import torch
import transformers
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

import kvassay
from kvassay.errors import InputError, StateError, UnsupportedError
from kvassay.hf.masks import real_tokens
from kvassay.hf.profile import fitted_spec
from kvassay.hf.sequences import Sequences
from kvassay.hf.shape import require_attention_functions, scale_of, shape_of
from kvassay.presets import preset as make_preset
from kvassay.protocol import Cache, FloatArray

ATTENTION: Final = "kvassay"
#: The attribute of a key tensor that leads the attention function to the cache.
_OWNER: Final = "_kvassay_layer"
_HOOKED: Final = "_kvassay_hooked"
#: Tokens of a pass that can be taken back one by one where pages would be fp16 as well.
_DRAFT: Final = 64
#: What other attention functions are told, and what changes the result.
_UNKNOWN: Final = ("softcap", "s_aux", "position_bias")


class KvassayCache(transformers.Cache):  # type: ignore[misc]
    """The cache of one sequence or a batch, for `model.generate(..., cache=cache)`.

    Any registered backend, or `module:Class`, and any preset or, by name or file, a profile of
    this model (IdentityError for one of another); keyword arguments change their fields.
    `cache.kvassay` is the kvassay cache of the first sequence: bytes, dumps, pages;
    `cache.sequences` has all. Creating one makes the model attend through kvassay. Layers with a
    sliding window get a span. Raises UnsupportedError naming what of the model a cache cannot hold,
    here or, where the config does not tell, at the first pass, which leaves lengths as they were.
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
        given = shape_of(model.config)
        require_attention_functions(model)
        fields.setdefault("softmax_scale", scale_of(model))
        if profile is None:
            spec = make_preset(preset, **{**given, **fields})
            if (spec.keys, spec.values, spec.window) == (
                "fp16",
                "fp16",
                0,
            ):  # the bits are the same
                spec = replace(spec, window=_DRAFT)
        else:
            spec = fitted_spec(model, profile, fields)
        loaded = kvassay.load(backend, variant)
        self._sequences = Sequences(loaded.prepare(spec, threads), loaded.shares)
        super().__init__(layers=[_Layer(self._sequences, n) for n in range(spec.layers)])
        model.set_attn_implementation(ATTENTION)
        _watch(model)

    @property
    def kvassay(self) -> Cache:
        """The kvassay cache of the first sequence."""
        return self._sequences.caches[0]

    @property
    def sequences(self) -> tuple[Cache, ...]:
        """The kvassay caches, one a sequence of the batch."""
        return tuple(self._sequences.caches)

    def reset(self) -> None:
        """Back to empty, of one sequence."""
        self._sequences.reset()
        self.forget()

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the newest tokens, as many as the negative number says.

        As in transformers a positive number is an error. Raises TruncateError where the fp16 data
        that this needs exists only as codes: never for tokens of the last pass, if the window is at
        least as long as that.
        """
        if tokens_to_remove > 0:
            raise InputError(
                f"crop({tokens_to_remove}): the number of tokens to remove is a negative number"
            )
        if tokens_to_remove:
            self._sequences.drop(-tokens_to_remove)

    def reorder_cache(self, beam_idx: Any) -> None:
        """Sequence i goes on from what was sequence `beam_idx[i]`; twice wanted ones are forked."""
        self._sequences.select(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every sequence `repeats` times, by forks."""
        count = len(self._sequences.caches)
        self._sequences.select([n for n in range(count) for _ in range(repeats)])

    def batch_select_indices(self, indices: Any) -> None:
        """Keep these sequences: numbers, or a mask."""
        wanted = torch.arange(len(self._sequences.caches))[indices.cpu()]
        self._sequences.select(wanted.tolist())

    def forget(self) -> None:
        """Keys and values that no attention has asked for."""
        for layer in self.layers:
            layer.waiting = None

    def settle(self) -> None:
        """After a pass: every layer's keys and values went through attention, or StateError."""
        left = [n for n, layer in enumerate(self.layers) if layer.waiting is not None]
        if left or not any(real.shape[1] for real in self._sequences.real):
            self.abandon()
            which = f"layers {left}" if left else "all layers"
            raise StateError(
                f"attention of {which} did not go through kvassay, so the pass was in full "
                f"precision; call model.set_attn_implementation({ATTENTION!r})"
            )
        self._sequences.end()

    def abandon(self) -> None:
        """After a pass that was refused: lengths are what they were before it."""
        self._sequences.take_back()
        self.forget()

    def __deepcopy__(self, memo: dict[int, Any]) -> KvassayCache:
        """A fork: it shares sealed pages and goes its own way."""
        copy: KvassayCache = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._sequences = self._sequences.fork()
        copy.layers = [_Layer(copy._sequences, n) for n in range(len(self.layers))]
        return copy

    def __copy__(self) -> KvassayCache:
        """As a deep copy: two caches of the same pages would disagree at the next token."""
        return self.__deepcopy__({})

    def __reduce_ex__(self, protocol: Any) -> Never:
        raise StateError(
            "a KvassayCache is not pickled: keep cache.kvassay.dump_bytes() and restore that"
        )


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of the kvassay caches, as transformers wants to see it."""

    is_sliding = False
    is_croppable = True
    supports_early_init = False
    is_initialized = True

    def __init__(self, sequences: Sequences, index: int) -> None:
        super().__init__()
        self.is_initialized = True
        self._sequences = sequences
        self._index = index
        self.waiting: tuple[Any, Any] | None = None
        """Keys and values that no attention has asked for yet."""

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Nothing: the kvassay caches exist already."""

    def update(
        self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Hold (sequences, kv_heads, tokens, head_dim); the keys lead the attention here."""
        if self.waiting is not None:
            raise StateError(
                f"layer {self._index}: attention over the last tokens did not go through kvassay; "
                f"call model.set_attn_implementation({ATTENTION!r})"
            )
        if key_states.shape != value_states.shape:
            raise UnsupportedError(
                f"layer {self._index}: keys {tuple(key_states.shape)} and values "
                f"{tuple(value_states.shape)} of different shape"
            )
        self.waiting = (key_states, value_states)
        setattr(key_states, _OWNER, self)
        return key_states, value_states

    def attend(self, query: Any, key: Any, value: Any, mask: Any, scaling: float | None) -> Any:
        """Append what waits and attend (sequences, query_heads, n, head_dim) over the newest n
        tokens: (sequences, n, heads, head_dim), zero for padding."""
        spec = self._sequences.caches[0].spec
        if scaling is not None and float(np.float32(scaling)) != spec.effective_softmax_scale:
            raise UnsupportedError(
                f"layer {self._index} scales by {scaling}, the cache by "
                f"{spec.effective_softmax_scale}; give it softmax_scale={scaling}"
            )
        if self.waiting is None or key is not self.waiting[0] or value is not self.waiting[1]:
            raise UnsupportedError(
                f"layer {self._index}: keys or values were changed between cache and attention"
            )
        sequences, heads, n, head_dim = query.shape
        if n != key.shape[2]:
            raise UnsupportedError(f"layer {self._index}: {n} queries for {key.shape[2]} tokens")
        self._sequences.start(self._index, sequences, n)
        before, span = self._sequences.real[self._index], spec.layer_specs[self._index].span
        new = real_tokens(mask, before, n, span, self._index)
        if not torch.isfinite(key).all() or not torch.isfinite(value).all():
            raise UnsupportedError(f"layer {self._index}: keys or values that are not finite")
        out = torch.zeros((sequences, n, heads, head_dim))
        for number, cache in enumerate(self._sequences.caches):
            real = new[number]
            if not bool(real.any()):
                continue
            k, v, q = (_rows(states[number], real) for states in (key, value, query))
            cache.append(self._index, k, v)
            out[number, real] = torch.from_numpy(cache.attend(self._index, q))
        self._sequences.add(self._index, new)
        self.waiting = None
        return out.to(query.device, query.dtype)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Tokens after these queries, and where they begin."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens appended to this layer, padding included."""
        return int(self._sequences.real[self._index].shape[1])

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
    """The attention function `kvassay` of transformers: (sequences, n, query_heads, head_dim)."""
    layer = getattr(key, _OWNER, None)
    if layer is None:
        raise StateError("attention `kvassay` without a KvassayCache: pass cache=cache")
    asked = [
        name for name in ("softcap", "s_aux", "position_bias") if options.get(name) is not None
    ]
    if dropout:
        asked.append("dropout")
    if options.get("is_causal") is False:
        asked.append("queries that see later tokens")
    if asked:
        raise UnsupportedError(f"attention with {', '.join(asked)}")
    return layer.attend(query, key, value, attention_mask, scaling), None


def whole_mask(**options: Any) -> Any:
    """The mask as bool, (sequences, 1, queries, tokens), also where it is plainly causal: only what
    is there can be held against what a cache does."""
    never = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    return ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](**{**options, **never})


def _watch(model: Any) -> None:
    """Look at each pass of the model with a KvassayCache at its end; once a model."""

    def look(module: Any, args: Any, given: dict[str, Any], output: Any) -> None:
        for cache in (*args, *given.values()):
            if isinstance(cache, KvassayCache):
                cache.abandon() if output is None else cache.settle()

    if not getattr(model, _HOOKED, False):
        # Called after a pass that raised too: then there is no output.
        model.register_forward_hook(look, with_kwargs=True, always_call=True)
        setattr(model, _HOOKED, True)


def _rows(states: Any, real: Any) -> FloatArray:
    """(heads, tokens, head_dim) as float32 (tokens, heads, head_dim), without padding."""
    if not bool(real.all()):
        states = states[:, real.to(states.device)]
    rows: FloatArray = states.detach().transpose(0, 1).to("cpu", torch.float32).contiguous().numpy()
    return rows


transformers.AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, whole_mask)
