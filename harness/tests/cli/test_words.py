"""Options: one name means one thing in every command, and an old name says the new one."""

from __future__ import annotations

import pytest

from kvassay.cli import run
from kvassay.cli.parts.commands import command_names, whole_command


def refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """What is said of bad usage, on standard error alone."""
    assert run(words) == 2
    said = capsys.readouterr()
    assert not said.out
    return said.err.rstrip()


@pytest.mark.parametrize(
    ("words", "old", "now"),
    [
        (["gate", "--json", "r.jsonl"], "--json", "--records"),
        (["parity", "--json=r.jsonl"], "--json", "--records"),
        (["conformance", "x", "--json", "r"], "--json", "--records"),
        (["arms", "--results", "r.jsonl"], "--results", "--answers"),
        (["allocate", "--results", "r.jsonl"], "--results", "--answers"),
        (["verify", "c.json", "--records", "r"], "--records", "--from"),
    ],
)
def test_an_option_that_has_another_name_now_says_which(
    words: list[str], old: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, words) == f"error: no option {old}: it is {now} FILE now"


def test_an_unknown_option_is_not_taken_for_an_old_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refused(capsys, ["doctor", "--records", "r"]) == "error: No such option: --records"


def test_options_of_one_name_mean_one_thing() -> None:
    """Flags are flags in every command, files files, and their help says the same."""
    kinds: dict[str, set[tuple[bool, str]]] = {}
    for name in set(command_names()) - {"run"}:
        for option in whole_command(name).params:
            for flag in {"--json", "--resume", "--answers", "--records"} & {*option.opts}:
                kinds.setdefault(flag, set()).add((option.is_flag, option.help.split()[0]))
    assert kinds == {
        "--json": {(True, "Print")},
        "--resume": {(True, "Take")},
        "--answers": {(False, "Keep")},
        "--records": {(False, "Write")},
    }
