"""A runtime in Python that uses the cache: appends, attends, dumps.

    python standalone.py cache.kvdump [BACKEND]

It prints one line a fact and writes the dump, the same bytes as the programs beside it in other
languages.
"""

import sys

import numpy as np

import kvassay

LAYERS, TOKENS, PROMPT, HEADS, DIM = 2, 300, 200, 2, 64


def numbers(first: int, count: int) -> np.ndarray:
    """A sequence in [-1, 1), exact in binary16: what a model would compute."""
    i = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    mixed = (i * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(53)
    return (mixed.astype(np.float32) - 1024) / 1024


spec = kvassay.preset("turbo", layers=LAYERS, kv_heads=HEADS, query_heads=4, head_dim=DIM)
backend = kvassay.load(sys.argv[2] if len(sys.argv) > 2 else "native")
with backend.prepare(spec) as cache:
    print("variant", backend.variant)
    # A prompt at once, then token by token, as a decoder does. Keys come after RoPE.
    for first, tokens in [(0, PROMPT), *((token, 1) for token in range(PROMPT, TOKENS))]:
        for layer in range(LAYERS):
            start = (layer * TOKENS + first) * HEADS * DIM
            keys = numbers(start, tokens * HEADS * DIM).reshape(tokens, HEADS, DIM)
            cache.append(layer, keys, -keys)
    q = numbers(1 << 40, 4 * DIM).reshape(4, DIM)
    for layer in range(LAYERS):
        bits = cache.attend(layer, q).reshape(-1)[:4].view(np.uint32)
        print(f"layer {layer} attends", " ".join(f"{x:08x}" for x in bits))
    dump = cache.dump(sys.argv[1])
    print(f"{len(dump)} bytes, {sum(cache.nbytes.values())} held")
