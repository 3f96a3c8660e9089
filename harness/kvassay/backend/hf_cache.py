"""Any `transformers.Cache` class as a backend: what its `update` returns is what a model attends.

    kvassay gate --hf-cache package.module:CacheClass --hf-options nbits=4

torch and transformers are imported when a cache is made, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from ..errors import InputError, UnsupportedError
from ..protocol import Availability, Backend, BackendProvider, FloatArray
from ..spec import Spec
from .named_class import NamedClass
from .returned import Holder, ReturningBackend

SCHEME: Final = "hf-cache"
_NEEDS: Final = ("torch", "transformers")
#: Positions of caches that reserve them in advance.
_ROOM: Final = 4096


class HfCacheProvider(BackendProvider):
    """One variant, which needs torch and transformers."""

    foreign = True
    on_request = True

    def __init__(self, cls: NamedClass) -> None:
        self.name = f"{SCHEME}:{cls}"
        self._class = cls

    def variants(self) -> Mapping[str, Availability]:
        missing = [name for name in _NEEDS if find_spec(name) is None]
        if missing:
            said = f"{' and '.join(missing)} not installed; pip install 'kvassay[hf]'"
            return {HfCacheBackend.variant: Availability("missing-package", said)}
        return {HfCacheBackend.variant: Availability("ready")}

    def load(self, variant: str) -> Backend:
        return HfCacheBackend(self.name, self._class)


class HfCacheBackend(ReturningBackend):
    """A class of caches with the method `update` of transformers."""

    def __init__(self, name: str, cls: NamedClass) -> None:
        super().__init__(name, cls.name, cls.claimed_bits)
        cls.load()
        self._class = cls

    def holder(self, shape: Spec) -> Holder:
        """A cache for one sequence; of its parameters those that the shape tells are filled."""
        cache = self._class.make(_known(shape), "--hf-options")
        if not callable(getattr(cache, "update", None)):
            raise InputError(f"{self._class.path} has no method update: it is no Cache")
        return _Tensors(cache)


class _Tensors:
    """Arrays in and out of a cache of tensors (1, kv_heads, tokens, head_dim)."""

    def __init__(self, cache: Any) -> None:
        import torch

        self._torch = torch
        self._cache = cache

    def update(self, layer: int, k: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        with self._torch.inference_mode(False), self._torch.no_grad():
            back = self._cache.update(self._tensor(k), self._tensor(v), layer)
        if not isinstance(back, (tuple, list)) or len(back) < 2:
            raise InputError(f"update returned {type(back).__name__}, no pair of keys and values")
        return self._array(back[0]), self._array(back[1])

    def drop_last(self, tokens: int) -> None:
        """By a negative number, which every version understands."""
        if not getattr(self._cache, "is_croppable", hasattr(self._cache, "crop")):
            raise UnsupportedError("this cache says that it cannot be cropped")
        self._cache.crop(-tokens)

    def reset(self) -> None:
        if not hasattr(self._cache, "reset"):
            raise UnsupportedError("this cache has no method reset")
        self._cache.reset()

    def settle(self) -> None:
        """Nothing: what came back is not kept here."""

    def _tensor(self, rows: FloatArray) -> Any:
        return self._torch.from_numpy(rows.copy()).transpose(0, 1).unsqueeze(0).contiguous()

    def _array(self, states: Any) -> FloatArray:
        if getattr(states, "ndim", None) != 4 or states.shape[0] != 1:
            shape = tuple(getattr(states, "shape", ()))
            raise InputError(f"update returned {type(states).__name__} {shape}, not 4 dimensions")
        rows = states[0].transpose(0, 1).to("cpu", self._torch.float32).contiguous()
        found: FloatArray = rows.numpy()
        return found


def _known(shape: Spec) -> dict[str, Any]:
    """Values for parameters by the names that caches give them."""
    import torch
    from transformers import LlamaConfig

    config = LlamaConfig(
        num_hidden_layers=shape.layers,
        hidden_size=shape.query_heads * shape.head_dim,
        num_attention_heads=shape.query_heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
    )
    layers = dict.fromkeys(("num_layers", "num_hidden_layers", "n_layers"), shape.layers)
    heads = dict.fromkeys(("num_kv_heads", "num_key_value_heads", "n_kv_heads"), shape.kv_heads)
    same = {**layers, **heads}
    room = dict.fromkeys(("max_cache_len", "max_seq_len", "max_length"), _ROOM)
    one = dict.fromkeys(("batch_size", "max_batch_size"), 1)
    kind = {"device": "cpu", "dtype": torch.float32}
    return {**same, **room, **one, **kind, "head_dim": shape.head_dim, "config": config}


def open_cache(path: str) -> HfCacheProvider:
    """The provider of `package.module:CacheClass?option=value`."""
    return HfCacheProvider(NamedClass.of_text(path))
