"""What a record says of the machine: read from files that are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvassay.running.machine import CacheLevel, caches, describe_machine, frequency


@pytest.fixture
def cpu(tmp_path: Path) -> Path:
    """A core as Linux shows it: instructions and data apart, a cache for four cores."""
    rows = [
        ("1", "Data", "32K", "0"),
        ("1", "Instruction", "64K", "0"),
        ("2", "Unified", "512K", "0,4"),
        ("3", "Unified", "32768K", "0-3"),
        ("4", "Unified", "many", "0-3"),
    ]
    for number, row in enumerate(rows):
        folder = tmp_path / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), row, strict=True):
            (folder / name).write_text(f"{value}\n", encoding="ascii")
    return tmp_path


def test_caches_for_data_the_nearest_first(cpu: Path) -> None:
    found = caches(cpu)
    assert found == [
        CacheLevel(1, 32 << 10, 1), CacheLevel(2, 512 << 10, 2), CacheLevel(3, 32 << 20, 4),
    ]  # fmt: skip
    assert [cache.describe() for cache in found][1:] == [
        "512 KiB for 2 cores",
        "32768 KiB for 4 cores",
    ]


def test_a_governor_is_named_and_a_hidden_one_is_said_to_be(cpu: Path) -> None:
    assert "not to be seen" in frequency(cpu)
    (cpu / "cpufreq").mkdir()
    (cpu / "cpufreq" / "scaling_governor").write_text("powersave\n", encoding="ascii")
    assert frequency(cpu) == "governor powersave"
    assert caches(cpu / "nowhere") == []


def test_the_machines_record_has_both() -> None:
    found = describe_machine()
    assert found["frequency"]
    assert found["caches"] == {cache.name: cache.describe() for cache in caches()}
