"""Many conversations over one pool: the load that the tests put on it, with its own bookkeeping."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from sharing import give, load, rows, spec_of

from kvassay import Cache
from kvassay.backend.prefixes import PrefixStore
from kvassay.errors import CacheMemoryError, NonFiniteError, TruncateError
from kvassay.protocol import Pool

#: Beginnings that conversations share, as system prompts are.
PROMPTS = [[(7 * p + 3 * i) % 251 for i in range(20 + 24 * p)] for p in range(6)]
#: Conversations that one thread holds at a time, and how many of 150 tokens the pool has room for.
OPEN = 8
FIT = 11


@dataclass
class Load:
    """A pool, a store of prefixes, and what happened."""

    target: str
    check_every: int
    counts: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def run(self, conversations: int, threads: int = 2) -> None:
        """So many conversations, by so many threads at once."""
        backend = load(self.target)
        self.spec = spec_of()
        self.store = PrefixStore(self.spec, most=24)
        with backend.pool(self.spec) as pool:
            tables = sum(pool.nbytes.values())
            with give(pool.prepare(), list(range(150))):
                self.limit = tables + FIT * (sum(pool.nbytes.values()) - tables)
        with backend.pool(self.spec, self.limit) as pool:
            each = conversations // threads
            with ThreadPoolExecutor(threads) as workers:
                list(workers.map(lambda n: _Worker(self, pool, n).run(each), range(threads)))
            self.store.close()
            self.left = pool.nbytes["used"]
        with backend.pool(self.spec, self.limit) as empty:
            self.empty = empty.nbytes["used"]

    def count(self, what: str) -> None:
        """One more of these."""
        with self.lock:
            self.counts[what] += 1


@dataclass
class Talk:
    """A conversation: its cache and the tokens that must be in it."""

    cache: Cache
    tokens: list[int]


class _Worker:
    """One thread: opens, continues and closes conversations; evicts where memory runs out."""

    def __init__(self, load_: Load, pool: Pool, number: int) -> None:
        self.load, self.pool = load_, pool
        self.draw = random.Random(number)
        self.talks: list[Talk] = []

    def run(self, conversations: int) -> None:
        for number in range(conversations):
            self.open()
            for _ in range(self.draw.randrange(1, 4)):
                self.step(self.draw.choice(self.talks))
            if number % self.load.check_every == 0:
                self.check(self.draw.choice(self.talks))
            while len(self.talks) > OPEN:
                self.close(self.talks[0])
        while self.talks:
            self.check(self.talks[0])
            self.close(self.talks[0])

    def open(self) -> None:
        """A prompt, adopted from the store if it is known, and a first turn."""
        prompt = self.draw.choice(PROMPTS)
        length = self.draw.choice([8, 20, 40, 120])
        tokens = prompt + [self.draw.randrange(251) for _ in range(length)]
        talk = Talk(self.patiently(self.pool.prepare), [])
        self.talks.append(talk)
        known = len(tokens) if self.adopt(talk, tokens) else 0
        talk.tokens = tokens[:known]
        self.append(talk, tokens[known:])
        if self.draw.random() < 0.2 and len(tokens) > 40:
            self.publish(talk)

    def adopt(self, talk: Talk, tokens: list[int]) -> bool:
        """Under the lock: the donor is shared by both threads, and might be evicted."""
        with self.load.lock:
            match = self.load.store.match(tokens)
            if match is None:
                return False
            try:
                rest = tokens[match.tokens :]
                k, v = (rows(self.load.spec, rest, stream) for stream in (0, 1))
                for layer in range(self.load.spec.layers):
                    match.adopt(talk.cache, layer, k, v)
            except CacheMemoryError:
                self.load.counts["memory refused"] += 1
                talk.cache.reset()
                return False
            self.load.counts["prefixes adopted"] += 1
            return True

    def publish(self, talk: Talk) -> None:
        """Keep a fork for others that begin alike."""
        with self.load.lock:
            try:
                self.load.store.publish(talk.tokens, talk.cache)
                self.load.counts["prefixes published"] += 1
            except CacheMemoryError:
                self.load.counts["memory refused"] += 1
                self.load.store.evict()

    def append(self, talk: Talk, tokens: list[int]) -> None:
        """In chunks; one that fits some layers and not others is taken back from all."""
        for start in range(0, len(tokens), 16):
            chunk = tokens[start : start + 16]
            self.patiently(lambda chunk=chunk: self.all_layers(talk, chunk), spare=talk)  # type: ignore[misc]
            talk.tokens = talk.tokens + chunk
            self.load.count("appends")

    def all_layers(self, talk: Talk, tokens: list[int]) -> Cache:
        talk.cache.mark(len(tokens))
        try:
            give(talk.cache, tokens)
        except CacheMemoryError:
            talk.cache.rollback(0)
            raise
        talk.cache.commit()
        return talk.cache

    def patiently(self, work: Callable[[], Cache], spare: Talk | None = None) -> Cache:
        """Try, and make room as long as memory runs out."""
        while True:
            try:
                return work()
            except CacheMemoryError:
                self.load.count("memory refused")
                self.make_room(spare)

    def make_room(self, spare: Talk | None) -> None:
        """The least recently used prefix, else the oldest conversation of this thread."""
        with self.load.lock:
            if self.load.store.evict():
                self.load.count("prefixes evicted")
                return
        others = [talk for talk in self.talks if talk is not spare]
        if not others:  # the other thread has the rest; it makes room when it needs some itself
            time.sleep(0.002)
            self.load.count("waits")
            return
        self.check(others[0])
        self.close(others[0])
        self.load.count("conversations evicted")

    def step(self, talk: Talk) -> None:
        """What a conversation does: a turn, a draft, an edit, a refused input."""
        kind = self.draw.randrange(5)
        cache, spec = talk.cache, self.load.spec
        if kind == 0:
            self.append(talk, [self.draw.randrange(251) for _ in range(self.draw.randrange(1, 40))])
        elif kind == 1:
            self.draft(talk)
        elif kind == 2:
            n = self.draw.randrange(len(talk.tokens) + 1)
            try:
                cache.truncate(n)
                talk.tokens = talk.tokens[:n]
                self.load.count("truncations")
            except TruncateError as error:
                self.load.count("truncations refused")
                if not error.allowed:
                    self.load.lost.append(f"a refusal that names no length: {error}")
            if not talk.tokens:
                self.append(talk, [1])
        elif kind == 3:
            bad = np.full((1, spec.kv_heads, spec.head_dim), np.nan, np.float32)
            try:
                cache.append(0, bad, bad)
                self.load.lost.append("a NaN was accepted")
            except NonFiniteError:
                self.load.count("bad input refused")
        else:
            q = np.ones((spec.query_heads, spec.head_dim), np.float32)
            if not np.isfinite(cache.attend(0, q)).all():
                self.load.lost.append("an output that is not finite")
            self.load.count("queries")

    def draft(self, talk: Talk) -> None:
        """Eight tokens on trial, of which some stay."""
        tokens = [self.draw.randrange(251) for _ in range(8)]
        keep = self.draw.randrange(9)
        try:
            talk.cache.mark(8)
        except CacheMemoryError:
            self.load.count("memory refused")
            return
        try:
            give(talk.cache, tokens)
            talk.cache.rollback(keep)
            talk.tokens = talk.tokens + tokens[:keep]
            self.load.count("drafts")
        except CacheMemoryError:
            self.load.count("memory refused")
            talk.cache.rollback(0)

    def check(self, talk: Talk) -> None:
        """What the conversation holds is what its transcript makes."""
        with give(load(self.load.target).prepare(self.load.spec), talk.tokens) as fresh:
            if talk.cache.dump() != fresh.dump():
                self.load.lost.append(f"a conversation of {len(talk.tokens)} tokens")
        self.load.count("conversations compared")

    def close(self, talk: Talk) -> None:
        self.talks.remove(talk)
        talk.cache.close()
        self.load.count("conversations")
