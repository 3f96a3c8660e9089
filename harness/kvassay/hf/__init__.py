"""Models of the package transformers: generation with any backend, and captured tensors of them.

    from kvassay.hf import KvassayCache, capture_model

Needs the extra `hf` (torch, transformers).
"""

from kvassay.hf.cache import KvassayCache
from kvassay.hf.recording import capture_model

__all__ = ["KvassayCache", "capture_model"]
