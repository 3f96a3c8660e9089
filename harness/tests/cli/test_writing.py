"""Files that results are written to: links, devices, modes, leftovers, and refusals before work."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from synthetic import good_records, make, question

import kvassay
from kvassay.cli import run
from kvassay.errors import InputError, KvassayError, WriteError
from kvassay.judging.gate import judge
from kvassay.records import RecordWriter, read_records
from kvassay.report import write_report
from kvassay.report.junit import write_junit
from kvassay.report.markdown import write_markdown
from kvassay.writing import check_outputs, is_stream, write_text, write_whole

Capture = pytest.CaptureFixture[str]
posix = pytest.mark.skipif(os.name != "posix", reason="modes, links and devices of POSIX")


def _dump(path: Path) -> None:
    spec = kvassay.preset("turbo", layers=1, kv_heads=1, query_heads=1, head_dim=16)
    with kvassay.load("reference").prepare(spec) as cache:
        cache.dump(path)


def _records(path: Path) -> None:
    with RecordWriter(path, good_records()) as writer:
        writer.write([make("quality.more", 1.0)])


def _report(path: Path) -> None:
    write_report(path, judge(good_records(), question()), good_records())


def _junit(path: Path) -> None:
    write_junit(path, judge(good_records(), question()))


def _markdown(path: Path) -> None:
    write_markdown(path, judge(good_records(), question()), good_records())


def _index(path: Path) -> None:
    from kvassay.retrieval import Index

    Index(16, 4).save(path)


WRITERS = [_dump, _records, _report, _junit, _markdown, _index]
writers = pytest.mark.parametrize("write", WRITERS)


@posix
@writers
def test_devices_are_written_through_links_followed_and_modes_kept(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    # A pipe stands for all devices: a fault that is planted must not replace the machine's own.
    pipe, real, link = tmp_path / "pipe", tmp_path / "real", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("real")
    old = os.umask(0o027)
    try:
        write(link)
        assert stat.S_IMODE(real.stat().st_mode) == 0o640
        real.chmod(0o604)
        write(link)
        with ThreadPoolExecutor(1) as reader:
            read = reader.submit(pipe.read_bytes)
            write(pipe)
    finally:
        os.umask(old)
    assert read.result()[:4] == real.read_bytes()[:4]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o604
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "real", "link"}


@writers
def test_what_cannot_be_written_is_named(
    tmp_path: Path, write: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "none" / "x", Path(), tmp_path):
        with pytest.raises(WriteError) as caught:
            write(path)
        assert repr(str(path)) in str(caught.value)
    assert not list(tmp_path.iterdir())


@writers
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, write: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"cannot write .*No space left"):
        write(path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


KILLED = """
import os, sys
from kvassay.writing import write_whole
def parts():
    yield b"begun"
    print("begun", flush=True)
    sys.stdin.read()
write_whole("dump", sys.argv[1], parts())
"""


@posix
def test_the_next_write_clears_what_a_killed_one_left_and_no_other(tmp_path: Path) -> None:
    path, other = tmp_path / "a.kvdm", tmp_path / ".a.kvdm.backup"
    other.write_bytes(b"mine")

    def begin() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        return process

    dead, alive = begin(), begin()
    assert len(list(tmp_path.iterdir())) == 3
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    write_whole("dump", path, [b"whole"])
    assert path.read_bytes() == b"whole"
    assert len(list(tmp_path.iterdir())) == 3  # that of the one that lives, and the backup
    alive.communicate()
    assert alive.returncode == 0
    assert path.read_bytes() == b"begun"
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.kvdm", ".a.kvdm.backup"}


@posix
def test_a_link_to_what_a_process_has_open_is_no_name(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as stream:
        number = f"/dev/fd/{stream.fileno()}"
        assert is_stream(number)
        write_text("report", number, "through")
        assert os.fstat(stream.fileno()).st_nlink == 1
    assert path.read_text() == "through"


def test_outputs_are_checked_before_and_change_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"kept")
    check_outputs({"--records": tmp_path / "new", "--report": kept, "--junit": None})
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]
    with pytest.raises(WriteError, match="cannot write --records"):
        check_outputs({"--records": tmp_path / "none" / "x"})
    with pytest.raises(InputError, match="not the path"):
        check_outputs({"--records": "a\0b"})
    with pytest.raises(KvassayError, match=r"--report .* over --records"):
        check_outputs({"--records": tmp_path / "a", "--report": tmp_path / "." / "a"})
    check_outputs({"--records": os.devnull, "--report": os.devnull})


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    request = make("run.request", 1, preset="", detail=question().to_detail())
    path = tmp_path / "r.jsonl"
    path.write_text("".join(r.to_json() + "\n" for r in [request, *good_records()]))
    Path("link").symlink_to("r.jsonl")
    return path


@posix
@pytest.mark.parametrize(
    "arguments",
    [
        ["certify", "r.jsonl", "--by", "me", "--out", "r.jsonl"],
        ["certify", "r.jsonl", "--by", "me", "--out", "link"],
        ["gate", "--from", "r.jsonl", "--report", "r.jsonl"],
        ["gate", "--from", "link", "--junit", "r.jsonl"],
        ["gate", "--from", "r.jsonl", "--markdown", "./link"],
        ["gate", "--backend", "reference", "--baseline", "r.jsonl", "--records", "r.jsonl"],
        ["compare", "r.jsonl", "r.jsonl", "--report", "r.jsonl"],
    ],
)
def test_evidence_is_not_written_over(judged: Path, capsys: Capture, arguments: list[str]) -> None:
    before = judged.read_bytes()
    assert run(arguments) == 2
    assert "would be written over" in capsys.readouterr().err
    assert judged.read_bytes() == before
    assert list(read_records(judged))


@pytest.mark.parametrize(
    "arguments",
    [
        ["gate", "--backend", "reference", "--records", "."],
        ["gate", "--backend", "reference", "--records", "none/r.jsonl"],
        ["gate", "--backend", "reference", "--report", "."],
        ["gate", "--backend", "reference", "--junit", "none/j.xml"],
        ["gate", "--backend", "reference", "--markdown", "none/s.md"],
        ["gate", "--backend", "reference", "--answers", "none/a.jsonl"],
        ["parity", "--backend", "reference", "--records", "."],
        ["conformance", "kvassay_backends.reference:ReferenceBackend", "--records", "."],
        ["gate", "--from", "r.jsonl", "--report", "none/r.html"],
        ["certify", "r.jsonl", "--by", "me", "--out", "."],
        ["compare", "r.jsonl", "r.jsonl", "--report", "none/c.html"],
        ["capture", "none/x.safetensors", "--model", "tiny-gqa"],
        ["capture", ".", "--model", "tiny-gqa"],
        ["codecs", "--plot", "none/p.html"],
        ["arms", "--plot", "none/p.html"],
        ["arms", "--answers", "none/r.jsonl"],
        ["allocate", "--answers", "."],
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(
    judged: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def never(*given: object, **named: object) -> None:
        raise AssertionError("measured")

    for name in (
        "cli.parts.measuring.run",
        "cli.parts.measuring.judge",
        "cli.certify.certify",
        "arms.running.run",
    ):
        monkeypatch.setattr(f"kvassay.{name}", never)
    monkeypatch.setattr("kvassay.cli.capture._run_of", never)
    monkeypatch.setattr("kvassay.distortion.compare.choose", never)
    monkeypatch.setattr("kvassay.cli.allocate.layers_of", never)
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert "error: cannot write" in error
    assert "Traceback" not in error
    assert judged.read_bytes()


def kvassay_with(arguments: list[str], redirect: str) -> subprocess.CompletedProcess[str]:
    """The script under a shell, its standard streams changed."""
    script = f'"$0" -m kvassay "$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}", sys.executable, *arguments],
        capture_output=True,
        text=True,
    )


@posix
@pytest.mark.parametrize(
    ("redirect", "status"),
    [
        (">&-", 0),
        (">&- 2>&- <&-", 0),
        ("| true", 0),
        ("2>&1 | true", 0),
        ("> /dev/full", 2),
    ],
)
def test_the_exit_status_is_the_verdicts_whoever_reads(
    judged: Path, redirect: str, status: int
) -> None:
    if "/dev/full" in redirect and not Path("/dev/full").exists():
        pytest.fail("this test needs /dev/full")
    found = kvassay_with(["gate", "--from", "r.jsonl"], redirect)
    assert (found.returncode, "Traceback" in found.stderr) == (status, False), found.stderr
    assert Path("report.html").stat().st_size > 1000
    assert judged.read_bytes()
