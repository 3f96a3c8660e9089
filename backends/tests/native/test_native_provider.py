"""What a library may do to us: be missing, stale, foreign, crash, hang; each has its own answer."""

from pathlib import Path
from typing import Any, Protocol

import pytest
from native_tools import BUILT, NATIVE, add, compile_c, make_queries, make_spec, make_tokens

from kvassay.backend.trials import trials_within
from kvassay.errors import UnavailableError
from kvassay.protocol import Availability
from kvassay_backends.native import LibraryBackendProvider, abi, backend, build_info, provider
from kvassay_backends.native.kernel_backend import KernelBackend

# The wrappers below are linked to the built library: what they do not define, it provides.
HEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "kvassay_bounded.h"
static kv_info changed(void) {
  return *((const kv_info *(*)(void))dlsym(RTLD_NEXT, "kv_get_info"))();
}
"""
OTHER_ABI = """
KV_EXPORT const kv_info *kv_get_info(void) {
  static kv_info info;
  info = changed();
  info.abi_version = 7;
  return &info;
}
"""
PURE = OTHER_ABI.replace("abi_version = 7", "flags = KV_FLAG_EXACT")
UNPROMISED = OTHER_ABI.replace("abi_version = 7", "flags = KV_FLAG_CACHE")
UNBOUND = OTHER_ABI.replace("abi_version = 7", "flags = KV_FLAG_CACHE | KV_FLAG_BOUNDED")
BOUNDED = UNBOUND + "KV_EXPORT double kv_error_bound(void) { return 0.25; }"
UNBELIEVABLE = BOUNDED.replace("0.25", "-0.25")
HANGS = "KV_EXPORT int32_t kv_variant_runs(uint32_t v, kv_error *e) { for (;;) pause(); }"
UNLOADABLE = "__attribute__((constructor)) static void go(void) { raise(SIGSEGV); }"
SECOND_VARIANT_CRASHES = """
KV_EXPORT const kv_info *kv_get_info(void) {
  static kv_info info;
  info = changed();
  info.variant_count = 3;
  return &info;
}
KV_EXPORT const char *kv_variant_name(uint32_t v) {
  static const char *const names[] = {"scalar", "sixteen", "thirty-two"};
  return v < 3 ? names[v] : NULL;
}
KV_EXPORT int32_t kv_variant_runs(uint32_t v, kv_error *e) {
  if (v < 2) return KV_OK;
  strcpy(e->message, "this CPU has no 32-lane registers");
  return KV_E_VARIANT;
}
KV_EXPORT int32_t kv_cache_create(const kv_cache_config *c, kv_cache **out, kv_error *e) {
  if (strcmp(c->variant, "sixteen") == 0) raise(SIGILL);
  return ((int32_t (*)(const kv_cache_config *, kv_cache **, kv_error *))dlsym(
      RTLD_NEXT, "kv_cache_create"))(c, out, e);
}
"""
READY = Availability("ready")


class Wrap(Protocol):
    """Compiles a wrapper around the built library."""

    def __call__(self, text: str, *, linked: bool = True) -> LibraryBackendProvider: ...


@pytest.fixture
def wrap(tmp_path: Path) -> Wrap:
    def make(text: str, *, linked: bool = True) -> LibraryBackendProvider:
        source, made = tmp_path / "wrapper.c", tmp_path / "libwrapper.so"
        source.write_text(HEAD + text)
        needed = ["-Wl,--no-as-needed", str(BUILT), f"-Wl,-rpath,{BUILT.parent}"] if linked else []
        compile_c(["-shared", "-fPIC", "-O1", "-w", str(source), *needed, "-o", str(made)])
        return LibraryBackendProvider("wrapped", made)

    return make


def test_the_built_library_is_ready() -> None:
    assert backend.variants()["scalar"] == READY
    loaded = backend.load("scalar")
    assert (loaded.name, loaded.variant, loaded.exact) == ("native", "scalar", True)
    with pytest.raises(UnavailableError, match="no such variant"):
        backend.load("bogus")


def test_a_library_that_was_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "build_record", lambda: None)
    monkeypatch.setattr(provider, "stale_reason", lambda: "not built; run: python x.py")
    (state,) = LibraryBackendProvider("native").variants().values()
    assert state == Availability("not-built", "not built; run: python x.py")


def test_a_stale_library_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "stale_reason", lambda: "built from other sources")
    stale = LibraryBackendProvider("native")
    assert stale.variants()["scalar"] == Availability(
        "not-built", "stale: built from other sources"
    )
    with pytest.raises(UnavailableError, match="stale"):
        stale.load("scalar")


def test_another_build_than_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    built = build_info.build_record()
    assert built is not None
    record = {**built, "build_id": "0" * 64}
    monkeypatch.setattr(provider, "build_record", lambda: record)
    state = LibraryBackendProvider("native").variants()["scalar"]
    assert state.status == "broken"
    assert "build.json says 0000" in state.reason


def test_a_missing_file(tmp_path: Path) -> None:
    state = LibraryBackendProvider("mine", tmp_path / "mine.so").variants()["scalar"]
    assert state.status == "not-built"
    assert "mine.so" in state.reason


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "mine.so"
    path.write_text("no library")
    state = LibraryBackendProvider("mine", path).variants()["scalar"]
    assert state.status == "broken"
    assert f"cannot load {path}" in state.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OTHER_ABI, "abi_version is 7, this kvassay needs 1"),
        (UNPROMISED, "promises neither bits (KV_FLAG_EXACT) nor a bound"),
        (UNBOUND, "does not export kv_error_bound"),
        (UNBELIEVABLE, "kv_error_bound is -0.25, not positive"),
        (UNLOADABLE, "killed by SIGSEGV"),
    ],
)
def test_foreign_libraries_are_refused_with_the_reason(wrap: Wrap, text: str, reason: str) -> None:
    (state,) = wrap(text).variants().values()
    assert state.status == "broken"
    assert reason in state.reason


def test_a_library_without_the_functions(wrap: Wrap) -> None:
    (state,) = wrap("KV_EXPORT int kv_nothing;", linked=False).variants().values()
    assert state.status == "broken"
    assert "does not export kv_" in state.reason


def test_a_library_that_hangs(wrap: Wrap) -> None:
    with trials_within(1):  # counted from when a variant is tried
        states = wrap(HANGS).variants()
    assert set(states.values()) == {Availability("broken", "did not finish within 1 s")}
    own = LibraryBackendProvider("native").variants()  # without those that only an emulator runs
    assert set(states) == set(own)  # each was given its own time


def test_a_library_that_hangs_when_it_is_loaded(wrap: Wrap) -> None:
    found = wrap("#include <unistd.h>\n__attribute__((constructor)) static void c(void) {pause();}")
    with trials_within(1):
        states = dict(found.variants())
    assert states == {"scalar": Availability("broken", "did not finish within 1 s")}


def test_one_variant_crashes_and_the_others_are_used(wrap: Wrap) -> None:
    wrapped = wrap(SECOND_VARIANT_CRASHES)
    assert list(wrapped.variants().items()) == [
        ("thirty-two", Availability("unsupported-cpu", "this CPU has no 32-lane registers")),
        ("sixteen", Availability("broken", "killed by SIGILL")),
        ("scalar", READY),
    ]
    with pytest.raises(UnavailableError, match="killed by SIGILL"):
        wrapped.load("sixteen")
    spec = make_spec()
    with wrapped.load("scalar").prepare(spec) as cache:
        add(cache, make_tokens(spec, 40))
        assert cache.attend(0, make_queries(spec, 1)).shape == (1, 4, 32)


def test_a_bounded_library_says_how_far_it_may_be_off(wrap: Wrap) -> None:
    loaded = wrap(BOUNDED).load("scalar")
    assert (loaded.exact, loaded.bound) == (False, 0.25)


PURE_SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"keys": "turbo:3+qjl", "values": "turbo:2.5", "key_centre": "frozen", "scale": "fp16"},
    {"keys": "kivi:2", "values": "kivi:4", "window": 7, "sinks": 3, "span": 50},
    {"keys": "fp16", "values": "fp16", "key_centre": "none", "value_centre": "none"},
    {"layers": 2, "layer_overrides": {1: {"keys": "kivi:4", "page_tokens": 32}}, "span": 33},
)


@pytest.mark.parametrize("fields", PURE_SPECS)
def test_pure_kernels_alone_give_the_same_bits(wrap: Wrap, fields: dict[str, Any]) -> None:
    """The library's kernels, in a life cycle that is not the library's."""
    loaded = wrap(PURE).load("scalar")
    assert type(loaded) is KernelBackend
    spec = make_spec(**fields)
    rows, q = make_tokens(spec, 90), make_queries(spec, 5)
    with loaded.prepare(spec) as ours, NATIVE.prepare(spec) as theirs:
        for cache in (ours, theirs):
            add(cache, rows[:, :50])
            add(cache, rows[:, 50:])
        assert ours.dump() == theirs.dump()
        assert ours.pages(0) == theirs.pages(0)
        for layer in range(spec.layers):
            assert ours.attend(layer, q).tobytes() == theirs.attend(layer, q).tobytes()
            assert ours.scores(layer, q[0]).tobytes() == theirs.scores(layer, q[0]).tobytes()
        assert ours.counters.variants_ran == ("scalar",)
        with loaded.restore(spec, theirs.dump()) as restored:
            assert restored.attend(0, q).tobytes() == theirs.attend(0, q).tobytes()
        fork = ours.fork()
        fork.truncate(fork.length)
        fork.mark(4)
        add(fork, rows[:, :4])
        fork.rollback(0)
        assert fork.dump() == theirs.dump()


def test_a_library_needs_only_what_it_offers() -> None:
    """Of a whole cache no kernels are asked, of kernels no cache."""
    assert abi.needed("kv_cache_fork", True)
    assert not abi.needed("kv_cache_fork", False)
    assert abi.needed("kv_page_encode", False)
    assert not abi.needed("kv_page_encode", True)
    assert abi.needed("kv_supports", True)
    assert abi.needed("kv_supports", False)


def test_a_header_without_marks_is_refused() -> None:
    with pytest.raises(UnavailableError, match="BEGIN declarations"):
        abi.declarations("int32_t kv_supports(void);")


def test_a_process_and_its_children_probe_a_library_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(provider.PROBED, "{}")
    calls: list[Path] = []

    def counted(path: Path, build_id: str | None = None) -> dict[str, Availability]:
        calls.append(path)
        return {"scalar": Availability("broken", f"probe {len(calls)}")}

    monkeypatch.setattr(provider, "probe", counted)
    library = tmp_path / "mine.so"
    library.write_bytes(b"one")
    first = provider.LibraryBackendProvider("mine", library).variants()
    assert provider.LibraryBackendProvider("mine", library).variants() == first
    assert len(calls) == 1
    library.write_bytes(b"another")
    second = provider.LibraryBackendProvider("mine", library).variants()
    assert second["scalar"].reason == "probe 2"
