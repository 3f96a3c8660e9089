"""Certificates: what a pass rests on, so that somebody else can check it again.

A certificate is one JSON object: the question, the verdicts, digests of the records and of the
rules, the builds that were judged, the machine, who signed it off and when, and a digest over all
of that. The digest finds accidents, not forgers: it is no signature, since it needs no secret.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

from .._version import __version__
from ..errors import KvassayError
from ..page.dumpfile import write_atomically
from ..records import RECORD_SCHEMA, Record, read_records
from ..registry import load
from ..suite import Target
from .gate import PASS, Judgement, Question, judge
from .wording import conclusion

CERTIFICATE: Final = 1
CheckState = Literal["holds", "differs", "not checked"]


@dataclass(frozen=True)
class Check:
    """One thing that `verify` looked at."""

    what: str
    state: CheckState
    note: str = ""


def certify(source: Path, by: str, scope: str | None = None) -> dict[str, Any]:
    """A certificate of the pass that the records of a file are evidence of.

    Raises KvassayError where they are none: nothing but a pass is certified.
    """
    records = list(read_records(source))
    judgement = _judged(records, scope)
    if judgement.exit_status != PASS:
        raise KvassayError(f"{source}: not a pass, so not certified: {conclusion(judgement)}")
    content: dict[str, Any] = {
        "certificate": CERTIFICATE,
        "kvassay": __version__,
        "signed_off_by": by,
        "signed_off_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "question": {**Question.of(records).to_detail(), "scope": judgement.scope},
        "verdicts": _verdicts(judgement),
        "records": {
            "name": source.name,
            "sha256": _sha256(source.read_bytes()),
            "count": len(records),
            "schema": RECORD_SCHEMA,
        },
        "rules_sha256": rules_digest(),
        "builds": _builds(records),
        "machine": next((dict(r.detail) for r in records if r.check == "run.machine"), {}),
    }
    return {**content, "sha256": _seal(content)}


def write_certificate(path: str | os.PathLike[str], certificate: Mapping[str, Any]) -> None:
    """Write a certificate, whole or not at all."""
    text = json.dumps(certificate, indent=2, sort_keys=True, ensure_ascii=False)
    write_atomically(path, f"{text}\n".encode())


def read_certificate(path: Path) -> dict[str, Any]:
    """Read a certificate; raises KvassayError for what is none, or of another version."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, ValueError) as error:
        raise KvassayError(f"{path}: not a certificate: {error}") from None
    if not isinstance(data, dict) or "certificate" not in data:
        raise KvassayError(f"{path}: not a certificate; `kvassay certify` writes one")
    if data["certificate"] != CERTIFICATE:
        version = data["certificate"]
        raise KvassayError(f"{path}: certificate {version!r}, this kvassay reads {CERTIFICATE}")
    missing = {"sha256", "question", "verdicts", "records", "rules_sha256", "builds"} - set(data)
    if missing:
        raise KvassayError(f"{path}: the certificate has no {min(missing)!r}")
    return data


def verify(certificate: Mapping[str, Any], records: Path, installed: bool = False) -> list[Check]:
    """Check a certificate again: its own digest, the records, the rules, the verdicts.

    With `installed` also that the builds installed here are those that were judged.
    """
    content = {name: value for name, value in certificate.items() if name != "sha256"}
    checks = [_same("the certificate itself", certificate["sha256"], _seal(content))]
    checks.append(_same("records", certificate["records"]["sha256"], _sha256(records.read_bytes())))
    checks.append(_same("rules", certificate["rules_sha256"], rules_digest()))
    judgement = _judged(list(read_records(records)), certificate["question"]["scope"])
    again = _verdicts(judgement)
    agree = again == certificate["verdicts"] and judgement.exit_status == PASS
    checks.append(
        Check("verdicts, judged again", "holds" if agree else "differs", conclusion(judgement))
    )
    return checks + [
        _check_build(Target(b, v), build, installed) for b, v, build in certificate["builds"]
    ]


def rules_digest() -> str:
    """SHA-256 of the rules that ship with this kvassay."""
    return _sha256((files("kvassay.judging") / "rules.toml").read_bytes())


def _judged(records: Iterable[Record], scope: str | None) -> Judgement:
    found = list(records)
    question = Question.of(found)
    if scope is not None:
        question = replace(question, scope=scope)
    return judge(found, question)


def _verdicts(judgement: Judgement) -> list[dict[str, Any]]:
    return [
        {
            "backend": verdict.target.backend,
            "variant": verdict.target.variant,
            "preset": verdict.preset,
            "role": verdict.role,
            "decision": verdict.decision,
            "stage": verdict.stage,
        }
        for verdict in judgement.verdicts
    ]


def _builds(records: Iterable[Record]) -> list[list[str]]:
    """Backend, variant and what identifies the build: "" for pure Python."""
    return sorted(
        [r.backend, r.variant, str(r.detail.get("build_id", ""))]
        for r in records
        if r.check == "run.target"
    )


def _check_build(target: Target, build: str, installed: bool) -> Check:
    what = f"build of {target.backend}/{target.variant}"
    if not installed:
        return Check(what, "not checked", f"{build or 'pure Python'}; --installed compares it")
    try:
        found = load(target.backend, target.variant).build_id
    except KvassayError as error:
        return Check(what, "differs", f"cannot be loaded here: {error}")
    return _same(what, build, found)


def _same(what: str, certified: str, found: str) -> Check:
    if certified == found:
        return Check(what, "holds", certified)
    return Check(what, "differs", f"certified {certified or '-'}, found {found or '-'}")


def _seal(content: Mapping[str, Any]) -> str:
    """SHA-256 over the content as JSON with sorted keys and no spaces."""
    return _sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
