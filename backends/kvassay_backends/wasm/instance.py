"""One instance of a module: its memory, its calls, and what becomes of a call that fails."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from kvassay.backend.checks import require_ieee
from kvassay.backend.fences import MARGIN, active
from kvassay.errors import CacheMemoryError, KvassayError, UnavailableError

from ..native.abi import UNPROMISED, check_bound, needed
from ..native.failures import failure
from .faults import ModuleFault
from .fenced import FencedParts
from .layout import POINTER, constants, layout, signatures
from .memory import PAGE, LinearMemory
from .module import Module, callable_exports, engine, load_wasmtime

_VERSIONS: Final = (
    ("abi_version", "KV_ABI_VERSION"),
    ("contract_version", "KV_CONTRACT_VERSION"),
    ("page_version", "KV_PAGE_VERSION"),
    ("dump_version", "KV_DUMP_VERSION"),
)
_BOUND: Final = "kv_error_bound"
#: More than any module lists; a count beyond it is a lie.
_MOST_VARIANTS: Final = 64
#: Bytes that are kept between calls for what goes in and comes out; what needs more gives it back.
STAGING: Final = 256 * 1024
#: Of the block that is kept for errors and small results.
_ERROR: Final = 256
_RESULTS: Final = 64
#: Ticks of the engine that never come.
_NEVER: Final = 1 << 62


@dataclass(frozen=True)
class Limits:
    """What an instance may use: bytes of linear memory and, if it is metered, instructions a call
    and `seconds` from `start`, a monotonic time. Instructions alone are no limit: one that grows
    memory may take as long as thousands of others."""

    memory: int = 4 << 30
    fuel: int = 1 << 62
    seconds: float = math.inf
    start: float = 0.0


@dataclass(frozen=True)
class MemoryUse:
    """Linear memory of an instance: pages of 64 KiB and how often they grew, bytes in use now and
    at most, and the cap in pages."""

    pages: int
    growths: int
    used: int
    high_water: int
    cap: int


class _Constants:
    """The constants of the header as attributes, as a loaded library has them."""

    def __getattr__(self, name: str) -> int:
        try:
            return constants()[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class ErrorReport:
    """A kv_error read out of linear memory."""

    code: int
    layer: int
    head: int
    channel: int
    token: int
    message: str


class Instance:
    """A module with a memory of its own. Calls are serialised: an instance has one thread.

    Raises UnavailableError if the module speaks another version, ModuleFault for what it must not
    do. After a ModuleFault every further call raises it again.
    """

    def __init__(self, module: Module, limits: Limits | None = None) -> None:
        self.module = module
        self.limits = limits or Limits()
        self.lib = _Constants()
        self._wasmtime = load_wasmtime()
        self._lock = threading.RLock()
        self._fault: ModuleFault | None = None
        self._staged = (0, 0)
        #: Instructions executed so far, where the module counts them.
        self.spent = 0
        self._store = self._wasmtime.Store(engine(module.metered))
        if module.metered:
            self._store.set_epoch_deadline(_NEVER)
        self._store.set_limits(memory_size=self.limits.memory, instances=1, memories=1, tables=8)
        with self._faults("instantiation"):
            started = self._wasmtime.Instance(self._store, module.compiled, [])
        self._exports = exports = started.exports(self._store)
        known = callable_exports()
        self._functions = {name: exports[name] for name in module.exports & known.keys()}
        self._masks = {name: _mask(known[name][1]) for name in self._functions}
        self.memory = LinearMemory(self._store, exports["memory"])
        #: What lies between sentinels, looked at after each call.
        self.fenced = FencedParts(self.memory)
        if "kv_wasm_set_cap" in self._functions:
            self.call("kv_wasm_set_cap", self.limits.memory // PAGE)
        self._read_info()
        self.errors_at = self.take(_ERROR, "kv_error")
        self.results_at = self.take(_RESULTS, "a result")

    @property
    def path(self) -> Path:
        """The module's file."""
        return self.module.path

    def text(self, value: str) -> str:
        """What a message is made of: text already, unlike in a loaded library."""
        return value

    def has(self, name: str) -> bool:
        """Whether the module exports a function that it may leave out."""
        return name in self._functions

    def export(self, name: str) -> Callable[..., Any]:
        """An export that is not of the interface, as a plain function."""
        return functools.partial(self._exports[name], self._store)

    # ---- calls

    def call(self, name: str, *arguments: int) -> int:
        """Call an export and return its result, 0 where it has none; numbers are unsigned."""
        with self._lock:
            if self._fault is not None:
                raise self._fault
            with self._faults(name):
                result = self._functions[name](self._store, *arguments)
                if self.fenced:
                    self.fenced.check(name)
            return (result or 0) & self._masks[name]

    def check(self, name: str, *arguments: int) -> None:
        """Call a function that ends with a kv_error parameter; raise what it reports.

        Wasmtime computes under the rounding and flushing that the host has set: where that would
        change bits it is refused.
        """
        require_ieee()
        with self._lock:
            code = self.call(name, *arguments, self.errors_at)
            if code != self.lib.KV_OK:
                raise self.failure(code)

    def failure(self, code: int) -> KvassayError:
        """The exception for the code of the last call."""
        raw = layout("kv_error").unpack(self.memory.read(self.errors_at, _ERROR))
        report = ErrorReport(**{field.name: raw[field.name] for field in fields(ErrorReport)})
        error = failure(self, code, report)
        if isinstance(error, CacheMemoryError) and self.has("kv_wasm_refused"):
            asked, left = self.call("kv_wasm_refused"), self.call("kv_wasm_left")
            return self.refusal(str(error), asked, left)
        return error

    def refusal(self, message: str, asked: int, left: int) -> CacheMemoryError:
        """The error of a cap that was reached."""
        return CacheMemoryError(
            f"{message}; asked for {asked} bytes, {left} are left below the cap of "
            f"{self.limits.memory} bytes of linear memory",
            asked=asked,
            left=left,
        )

    @contextmanager
    def _faults(self, doing: str) -> Iterator[None]:
        """Turn what wasmtime raises into a ModuleFault, which ends the use of this instance."""
        if self.module.metered:
            self._store.set_fuel(self.limits.fuel)
        try:
            with self._timed(doing):
                yield
        except self._wasmtime.Trap as trap:
            raise self._ended(self._trapped(doing, trap)) from None
        except self._wasmtime.WasmtimeError as error:
            first = (str(error).strip().splitlines() or ["no message"])[0]
            raise self._ended(ModuleFault(f"{doing}: {first}", kind="trap")) from None
        except ModuleFault as fault:
            self._ended(fault)
            raise
        finally:
            if self.module.metered:
                self.spent += self.limits.fuel - self._store.get_fuel()

    @contextmanager
    def _timed(self, doing: str) -> Iterator[None]:
        """Interrupt what runs when the instance's time is over."""
        if self.limits.seconds == math.inf:
            yield
            return
        left = self.limits.start + self.limits.seconds - time.monotonic()
        if left <= 0:
            raise self._late(doing)
        self._store.set_epoch_deadline(1)
        timer = threading.Timer(left, engine(True).increment_epoch)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._store.set_epoch_deadline(_NEVER)

    def _late(self, doing: str) -> ModuleFault:
        return ModuleFault(f"{doing}: did not end within {self.limits.seconds:g} s", kind="fuel")

    def _trapped(self, doing: str, trap: Any) -> ModuleFault:
        if trap.trap_code == self._wasmtime.TrapCode.INTERRUPT:
            return self._late(doing)
        if trap.trap_code == self._wasmtime.TrapCode.OUT_OF_FUEL:
            return ModuleFault(
                f"{doing}: did not end within {self.limits.fuel:,} instructions", kind="fuel"
            )
        lines = [line for line in str(trap.message).splitlines() if "wasm trap" in line]
        reason = (lines or str(trap.message).splitlines() or ["trap"])[-1].strip()
        memory: LinearMemory | None = getattr(self, "memory", None)
        if memory is not None and 2 * memory.size > self.limits.memory:
            return ModuleFault(
                f"{doing}: {reason}, after linear memory had grown to {memory.size} bytes of the "
                f"{self.limits.memory} that it may have",
                kind="growth",
            )
        return ModuleFault(f"{doing}: {reason}", kind="trap")

    def _ended(self, fault: ModuleFault) -> ModuleFault:
        self._fault = fault
        return fault

    # ---- room in linear memory

    def take(self, size: int, what: str = "what was taken") -> int:
        """Bytes of the module's own allocator; CacheMemoryError if it refuses."""
        if active() is None:
            return self._take(size)
        address = self._take(size + 2 * MARGIN) + MARGIN
        self.fenced.add(address, size, what)
        return address

    def put(self, address: int, array: NDArray[Any]) -> None:
        """Copy a C-contiguous array to where the module is to read it."""
        self.memory.write_array(address, array)
        self.fenced.freeze(address)

    def _take(self, size: int) -> int:
        address = self.call("kv_wasm_alloc", size) if size < 1 << 32 else 0
        if address:
            self._inside(address, size)
            return address
        left = self.call("kv_wasm_left") if self.has("kv_wasm_left") else 0
        if self.has("kv_wasm_refused"):
            self.call("kv_wasm_refused")  # forget it: it is told here
        raise self.refusal(f"staging of {size} bytes", size, left)

    def give_back(self, address: int, size: int) -> None:
        """Return what `take` gave."""
        if self.fenced.drop(address):
            address, size = address - MARGIN, size + 2 * MARGIN
        self.call("kv_wasm_free", address, size)

    @contextmanager
    def room(self, size: int) -> Iterator[int]:
        """The address of `size` bytes for one call: kept ones if they are few."""
        with self._lock:
            if size <= STAGING and active() is None:
                yield self._kept(size)
                return
            with self._part(size, "what goes in and comes out") as address:
                yield address

    @contextmanager
    def rooms(self, **sizes: int) -> Iterator[list[int]]:
        """Addresses of parts of so many bytes each, by what they are for, for one call."""
        if active() is None:
            ends = [0, *accumulate(sizes.values())]
            with self.room(ends.pop()) as start:
                yield [start + end for end in ends]
            return
        with self._lock, ExitStack() as stack:
            yield [stack.enter_context(self._part(size, what)) for what, size in sizes.items()]

    @contextmanager
    def _part(self, size: int, what: str) -> Iterator[int]:
        address = self.take(size, what)
        try:
            yield address
        finally:
            if self._fault is None:
                self.give_back(address, size)

    def _kept(self, size: int) -> int:
        address, have = self._staged
        if size > have:
            if have:
                self._staged = (0, 0)
                self.give_back(address, have)
            address = self._take(size)
            self._staged = (address, size)
        return address

    @property
    def staging(self) -> int:
        """Bytes kept for what goes in and comes out."""
        return self._staged[1] + _ERROR + _RESULTS

    @property
    def use(self) -> MemoryUse:
        """Linear memory as the module counts it; what it does not count is told from outside."""
        pages = self.memory.size // PAGE
        told = {
            name: self.call(f"kv_wasm_{name}") if self.has(f"kv_wasm_{name}") else 0
            for name in ("growths", "used", "high_water")
        }
        return MemoryUse(pages=pages, cap=self.limits.memory // PAGE, **told)

    def _inside(self, address: int, size: int) -> None:
        """ModuleFault unless the bytes are in linear memory: what a module says is not trusted."""
        with self._faults("an address from the module"):
            self.memory.check(address, size)

    def read(self, address: int, size: int) -> bytes:
        """Bytes at an address that came from the module."""
        with self._faults("an address from the module"):
            return self.memory.read(address, size)

    def pointer(self, address: int) -> int:
        """A pointer that the module has written to such an address."""
        return int.from_bytes(self.read(address, POINTER), "little")

    def read_struct(self, name: str, address: int) -> dict[str, Any]:
        """A struct of the header at such an address."""
        return layout(name).unpack(self.read(address, layout(name).size))

    # ---- what the module says of itself

    def _declared_bound(self, flags: int) -> float:
        if not (flags & self.lib.KV_FLAG_BOUNDED and self.has(_BOUND)):
            raise UnavailableError(f"{self.path.name}: {UNPROMISED}")
        with self._faults(_BOUND):
            bound = self.export(_BOUND)()
        return check_bound(bound, self.path.name)

    def _read_info(self) -> None:
        info = self.read_struct("kv_info", self.call("kv_get_info"))
        for name, constant in _VERSIONS:
            if info[name] != constants()[constant]:
                raise UnavailableError(
                    f"{self.path.name}: {name} is {info[name]}, this kvassay needs "
                    f"{constants()[constant]}; build the module against its kvassay.h"
                )
        #: Offers a whole cache; else pure kernels, and the life cycle is the harness's.
        self.stateful = bool(info["flags"] & self.lib.KV_FLAG_CACHE)
        for name in signatures():
            if needed(name, self.stateful) and not self.has(name):
                raise ModuleFault(f"{self.path.name}: export {name} is missing", kind="export")
        if not 1 <= info["variant_count"] <= _MOST_VARIANTS:
            raise self._ended(
                ModuleFault(f"{info['variant_count']} variants are not believable", kind="bounds")
            )
        self.exact = bool(info["flags"] & self.lib.KV_FLAG_EXACT)
        #: Relative RMS that it may be off; None for an exact one.
        self.bound = None if self.exact else self._declared_bound(info["flags"])
        self.build_id = self._text(info["build_id"])
        #: Names by number.
        self.variants = tuple(
            self._text(self.call("kv_variant_name", i)) for i in range(info["variant_count"])
        )

    def _text(self, address: int) -> str:
        with self._faults("an address from the module"):
            return self.memory.text(address)


def _mask(results: tuple[str, ...]) -> int:
    return (1 << 64) - 1 if results == ("i64",) else (1 << 32) - 1
