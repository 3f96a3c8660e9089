"""The doors by which a backend comes in: one registry, the same checks at each."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import kvassay
from kvassay import plugins, registry
from kvassay.backend.signatures import mismatches
from kvassay.cli import run
from kvassay.errors import ModelError, RegistryError, UnavailableError, UnknownBackendError
from kvassay.judging.gate import Question
from kvassay.protocol import (
    PROTOCOL_VERSION,
    Availability,
    Backend,
    BackendProvider,
    Cache,
    Support,
)
from kvassay.registry import ClassProvider
from kvassay.spec import Spec

Capture = pytest.CaptureFixture[str]


class Plain(Backend):
    """Everything a backend must have, and nothing behind it."""

    name = "plain"
    variant = "scalar"

    def supports(self, spec: Spec) -> Support:
        return Support(False, "nothing is supported")

    def prepare(self, spec: Spec, threads: int = 1) -> Cache:
        raise NotImplementedError

    def restore_bytes(self, spec: Spec, data: bytes, threads: int = 1) -> Cache:
        raise NotImplementedError


class More(Plain):
    """Parameters of its own with defaults are nobody's business."""

    def prepare(self, spec: Spec, threads: int = 1, pinned: bool = False) -> Cache:
        raise NotImplementedError


class NoThreads(Plain):
    def prepare(self, spec: Spec) -> Cache:  # type: ignore[override]
        raise NotImplementedError


class OtherName(Plain):
    def prepare(self, spec: Spec, workers: int = 1) -> Cache:
        raise NotImplementedError


class NeedsMore(Plain):
    def supports(self, spec: Spec, level: int) -> Support:  # type: ignore[override]
        raise NotImplementedError


class Unfinished(Backend):
    name = "unfinished"
    variant = "scalar"


class Future(Plain):
    protocol = PROTOCOL_VERSION + 4


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (NoThreads, "prepare(self, spec: 'Spec') -> 'Cache': called as prepare("),
        (OtherName, "threads"),
        (NeedsMore, "supports(self, spec: 'Spec', level: 'int')"),
        (Unfinished, "prepare is missing; restore_bytes is missing; supports is missing"),
    ],
)
def test_signatures_are_checked_when_a_class_is_named(cls: type[Backend], said: str) -> None:
    with pytest.raises(RegistryError, match="cannot be used as a Backend") as raised:
        registry.provider(f"{__name__}:{cls.__name__}")
    assert said in str(raised.value)


class NoBound(Plain):
    exact = False


class ImmeasurableBound(Plain):
    exact, bound = False, float("nan")


class NegativeBound(Plain):
    exact, bound = False, -1e-3


class BoundInWords(Plain):
    exact, bound = False, "small"  # type: ignore[assignment]


class NoDevice(Plain):
    def __init__(self) -> None:
        raise RuntimeError("no device 0")


class Provider(BackendProvider):
    name = "provider"

    def variants(self) -> dict[str, Availability]:
        return {"scalar": Availability("ready")}

    def load(self, variant: str) -> Backend:
        return Plain()


class NoDriver(Provider):
    def variants(self) -> dict[str, Availability]:
        raise OSError("no driver")


class ListOfNames(Provider):
    def variants(self) -> dict[str, Availability]:
        return ["scalar"]  # type: ignore[return-value]


class LoadsNothing(Provider):
    def load(self, variant: str) -> Backend:
        return None  # type: ignore[return-value]


class WithArguments(Provider):
    def __init__(self, device: int) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (NoBound, "exact is False and bound is None; it needs exact = True, or exact = False and"),
        (ImmeasurableBound, "bound is nan"),
        (NegativeBound, "bound is -0.001"),
        (BoundInWords, "bound is 'small'"),
        (NoDevice, "load('scalar') raised RuntimeError: no device 0"),
        (NoDriver, "variants() raised OSError: no driver"),
        (ListOfNames, "variants() returned ['scalar'], no mapping of names to Availability"),
        (LoadsNothing, "NoneType cannot be used as a Backend"),
        (WithArguments, "WithArguments() raised TypeError"),
    ],
)
def test_what_is_no_backend_is_refused_with_the_reason(cls: type[Any], said: str) -> None:
    with pytest.raises(RegistryError) as raised:
        registry.load(f"{__name__}:{cls.__name__}")
    assert said in str(raised.value)


@pytest.mark.parametrize("cls", [NoDriver, NoBound])  # refused here, and in a worker
def test_the_gate_says_so_in_one_line(cls: type[Any], capsys: Capture) -> None:
    name = f"{__name__}:{cls.__name__}"
    assert gate("--backend", name, "--suite", "parity", "--depth", "quick") == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"error: backend {name!r}") or "error: backend 'provider'" in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import absent_package", "No module named 'absent_package'"),
    ],
)
def test_a_module_that_cannot_be_imported(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unimportable.py").write_text(source, encoding="utf-8")
    with pytest.raises(UnknownBackendError, match=f"cannot import backend .*{said}"):
        registry.provider("unimportable:Mine")


def test_what_the_protocol_allows_is_accepted() -> None:
    assert mismatches(Plain, Backend) == mismatches(More, Backend) == []
    assert registry.provider(f"{__name__}:More").variants() == {"scalar": Availability("ready")}


def test_a_providers_signatures_are_checked_too() -> None:
    class Odd(ClassProvider):
        def load(self) -> Backend:  # type: ignore[override]
            raise NotImplementedError

    with pytest.raises(RegistryError, match="Odd cannot be used as a BackendProvider: load"):
        kvassay.register(Odd("odd", Plain))


def test_another_protocol_is_refused_with_both_numbers() -> None:
    said = f"speaks protocol {PROTOCOL_VERSION + 4}, this kvassay speaks {PROTOCOL_VERSION}"
    with pytest.raises(RegistryError, match=said):
        registry.provider(f"{__name__}:Future")


def test_a_duplicate_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for taken in ("native", "mine"):
        if taken == "mine":
            kvassay.register(ClassProvider("mine", Plain))
        with pytest.raises(RegistryError, match=f"named '{taken}' exists already"):
            kvassay.register(ClassProvider(taken, Plain))
    twice = [EntryPoint("two", f"{__name__}:{cls}", plugins.BACKENDS) for cls in ("Plain", "More")]
    monkeypatch.setattr(plugins, "points", lambda _: tuple(twice))
    with pytest.raises(RegistryError, match="two packages offer a backend named 'two'"):
        registry.provider("two")


def test_an_installed_package_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "absent_package:Theirs", plugins.BACKENDS)
    monkeypatch.setattr(plugins, "points", lambda _: (point,))
    said = "'theirs': importing absent_package:Theirs raised ModuleNotFoundError"
    with pytest.raises(RegistryError, match=said):
        registry.providers()


def test_a_door_that_does_not_exist() -> None:
    with pytest.raises(UnknownBackendError, match="cannot import backend 'librray:x'"):
        registry.provider("librray:x")


def gate(*arguments: str) -> int:
    return run(["gate", "--jobs", "1", "-q", *arguments])


def test_a_file_that_is_not_there(capsys: Capture, tmp_path: Path) -> None:
    for door in ("library", "wasm"):
        assert gate(f"--{door}", str(tmp_path / "absent")) == 2
        assert f"--{door}: no file {tmp_path / 'absent'}" in capsys.readouterr().err


def test_a_library_that_is_none_is_rejected(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.so").write_text("no library", encoding="utf-8")
    assert gate("--library", "mine.so") == 1
    out = capsys.readouterr().out
    assert "rejected: library:" in out
    assert "cannot load" in out
    records = [json.loads(line) for line in Path("results.jsonl").read_text().splitlines()]
    (error,) = (record for record in records if record["check"] == "run.errors")
    assert (error["value"], error["comparisons"]) == (1.0, 1)
    capsys.readouterr()
    assert run(["parity", "--library", "mine.so", "-q"]) == 1  # and by a suite's own command


def test_no_variant_for_this_cpu_is_no_rejection(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Foreign(BackendProvider):
        name = "foreign"

        def variants(self) -> dict[str, Availability]:
            return {"sve": Availability("unsupported-cpu", "this CPU has no SVE")}

        def load(self, variant: str) -> Backend:
            raise UnavailableError(variant)

    path = tmp_path / "mine.so"
    path.touch()
    monkeypatch.setattr("kvassay.cli.parts.files.provider", lambda name: Foreign())
    assert gate("--library", str(path)) == 2
    assert "no variant for this CPU (sve: this CPU has no SVE)" in capsys.readouterr().err


def test_a_model_that_is_not_installed_is_no_fault_of_a_backend(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Path:
        raise ModelError(f"the default model {name} is not installed: run `pip install it`")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kvassay.models.locate", absent)
    assert gate("--backend", "reference", "--suite", "quality", "--quick") == 2
    assert "smollm2-135m is not installed: run `pip install it`" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_judging_baselines_is_asked_for_by_name(capsys: Capture) -> None:
    assert gate("--backend", "reference", "--judge-named") == 2
    assert "--judge-named judges the presets that --preset names" in capsys.readouterr().err
    assert gate("--backend", "reference", "--preset", "fp16") == 2
    assert "add a preset that is, or --judge-named" in capsys.readouterr().err


def test_a_question_keeps_who_is_judged() -> None:
    fields: dict[str, Any] = {"scope": "default", "targets": (), "presets": ("fp16",)}
    usual, named = (Question(**fields, judge_named=n) for n in (False, True))
    assert (usual.role("fp16"), usual.judges("fp16")) == ("baseline", False)
    assert (named.role("fp16"), named.judges("fp16")) == ("product", True)
    assert named.to_detail()["judge_named"] is True
