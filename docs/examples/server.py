"""A server's caches: a pool with a memory limit, and a prefix that conversations share.

python server.py
"""

import numpy as np

import kvassay
from kvassay.errors import CacheMemoryError

LAYERS, HEADS, DIM, PROMPT = 2, 2, 64, 512
spec = kvassay.preset("turbo", layers=LAYERS, kv_heads=HEADS, query_heads=4, head_dim=DIM)
random = np.random.default_rng(0)
prompt = [random.standard_normal((2, PROMPT, HEADS, DIM), dtype=np.float32) for _ in range(LAYERS)]

with kvassay.load("native").pool(spec, limit=2 * 2**20, threads=2) as pool:
    system = pool.prepare()
    for layer, (k, v) in enumerate(prompt):
        system.append(layer, k, v)
    pages = (PROMPT - spec.window - spec.sinks) // spec.page_tokens  # whole pages behind the window

    conversations = []
    while True:
        cache = pool.prepare()
        try:
            for layer, (k, v) in enumerate(prompt):  # the pages are shared, the window is its own
                kept = spec.sinks + pages * spec.page_tokens
                cache.adopt(layer, system, pages, k[kept:], v[kept:])
        except CacheMemoryError as full:
            cache.close()
            print(f"the limit holds: {str(full).split(';')[0]}")
            break
        conversations.append(cache)
    q = random.standard_normal((4, DIM), dtype=np.float32)
    same = all(np.array_equal(c.attend(0, q), system.attend(0, q)) for c in conversations)
    used = pool.nbytes["used"]
    print(f"{len(conversations)} conversations over one prompt of {PROMPT} tokens, {used} bytes")
    print("each attends as the first does:", same)
    for cache in (*conversations, system):
        cache.close()
