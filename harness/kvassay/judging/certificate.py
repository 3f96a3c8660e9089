"""Certificates: what a pass rests on, so that somebody else can check it again.

A certificate is one JSON object: the question, the verdicts, digests of the records and of the
rules, the builds that were judged, the machine and version, who signed it off and when, and a
digest over all of that. The digest finds accidents, not forgers: it is no signature, since it needs
no secret. All but who signed and when follows from the records, and is made from them again.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

from ..backend.sources import sources_of
from ..errors import KvassayError, RecordError
from ..json_text import read_json
from ..records import RECORD_SCHEMA, Record
from ..registry import load
from ..suite import Target
from ..writing import write_text
from .evidence import detail_of, read_run
from .gate import PASS, Question, judge
from .wording import conclusion

CERTIFICATE: Final = 1
CheckState = Literal["holds", "differs", "not checked"]
#: What a certificate holds and of which type; `sha256` is the digest over the others.
_FORM: Final[Mapping[str, type]] = {
    "certificate": int,
    "kvassay": str,
    "signed_off_by": str,
    "signed_off_at": str,
    "question": dict,
    "verdicts": list,
    "records": dict,
    "rules_sha256": str,
    "builds": list,
    "machine": dict,
    "sha256": str,
}
#: What cannot be found in the records.
_SIGNED: Final = ("signed_off_by", "signed_off_at")


@dataclass(frozen=True)
class Check:
    """One thing that `verify` looked at. What is not `demanded` may stay unchecked."""

    what: str
    state: CheckState
    note: str = ""
    demanded: bool = True


def certify(source: Path, by: str, scope: str | None = None) -> dict[str, Any]:
    """A certificate of the pass that the records of a file are evidence of.

    Raises KvassayError where they are none: nothing but a pass is certified.
    """
    found, status, said = _founded(source, scope)
    if status != PASS:
        raise KvassayError(f"{source}: not a pass, so not certified: {said}")
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    content = {"certificate": CERTIFICATE, "signed_off_by": by, "signed_off_at": now, **found}
    return {**content, "sha256": _seal(content)}


def write_certificate(path: str | os.PathLike[str], certificate: Mapping[str, Any]) -> None:
    """Write a certificate, whole or not at all."""
    text = json.dumps(certificate, indent=2, sort_keys=True, ensure_ascii=False)
    write_text("certificate", path, f"{text}\n")


def read_certificate(path: Path) -> dict[str, Any]:
    """Read a certificate; raises KvassayError for what is none, or of another version."""
    try:
        data = read_json(path.read_bytes())
    except ValueError as error:
        raise KvassayError(f"{path}: not a certificate: {error}") from None
    if not isinstance(data, dict) or "certificate" not in data:
        raise KvassayError(f"{path}: not a certificate; `kvassay certify` writes one")
    if data["certificate"] != CERTIFICATE:
        version = data["certificate"]
        raise KvassayError(f"{path}: certificate {version!r}, this kvassay reads {CERTIFICATE}")
    for name in sorted({*_FORM, *data}):
        if name not in data:
            raise KvassayError(f"{path}: the certificate has no {name!r}")
        if name not in _FORM:
            raise KvassayError(f"{path}: no certificate has {name!r}")
        if type(data[name]) is not _FORM[name]:
            raise KvassayError(f"{path}: {name} is of type {type(data[name]).__name__}")
    _check_parts(path, data)
    return data


def _check_parts(path: Path, data: Mapping[str, Any]) -> None:
    """What is read before it is compared: where the records are, by which scope, which builds."""
    name = data["records"].get("name")
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise KvassayError(f"{path}: records: name {name!r} is not the name of a file")
    if not isinstance(data["question"].get("scope"), str):
        raise KvassayError(f"{path}: question: scope is not text")
    for build in data["builds"]:
        texts = isinstance(build, list) and all(isinstance(text, str) for text in build)
        if not texts or len(build) != 3:
            raise KvassayError(f"{path}: builds: {build!r} is not backend, variant and build")


def verify(certificate: Mapping[str, Any], records: Path, installed: bool = False) -> list[Check]:
    """Check a certificate again: its own digest, and all that follows from the records.

    With `installed` also that the builds installed here are those that were judged.
    """
    content = {name: value for name, value in certificate.items() if name != "sha256"}
    checks = [_same("the certificate itself", certificate["sha256"], _seal(content))]
    digest = _sha256(records.read_bytes())
    checks.append(_same("records", certificate["records"].get("sha256"), digest))
    checks.append(_same("rules", certificate["rules_sha256"], rules_digest()))
    try:
        found, status, said = _founded(records, certificate["question"]["scope"])
    except RecordError as error:
        return [*checks, Check("verdicts, judged again", "differs", f"cannot be judged: {error}")]
    agree = found["verdicts"] == certificate["verdicts"] and status == PASS
    checks.append(Check("verdicts, judged again", "holds" if agree else "differs", said))
    found["records"]["name"] = certificate["records"]["name"]  # a copy may be called otherwise
    for name in ("question", "records", "builds", "machine", "kvassay"):
        checks += _compared(name, certificate[name], found[name])
    signed = " ".join(certificate[name] for name in _SIGNED)
    checks.append(Check("signed off", "not checked", signed, demanded=False))
    judged = certificate["builds"] if found["builds"] == certificate["builds"] else []
    return checks + [_check_build(Target(b, v), build, installed) for b, v, build in judged]


def rules_digest() -> str:
    """SHA-256 of the rules that ship with this kvassay."""
    return _sha256((files("kvassay.judging") / "rules.toml").read_bytes())


def _founded(source: Path, scope: str | None) -> tuple[dict[str, Any], int, str]:
    """All of a certificate that follows from the records, the exit status and the conclusion."""
    records = read_run(source)
    question = Question.of(records)
    if scope is not None:
        question = replace(question, scope=scope)
    judgement = judge(records, question)
    machine = detail_of(records, "run.machine")
    found = {
        "kvassay": str(machine.get("kvassay", "")),
        "question": question.to_detail(),
        "verdicts": [
            {
                "backend": verdict.target.backend,
                "variant": verdict.target.variant,
                "preset": verdict.preset,
                "role": verdict.role,
                "decision": verdict.decision,
                "stage": verdict.stage,
            }
            for verdict in judgement.verdicts
        ],
        "records": {
            "name": source.name,
            "sha256": _sha256(source.read_bytes()),
            "count": len(records),
            "schema": RECORD_SCHEMA,
        },
        "rules_sha256": rules_digest(),
        "builds": _builds(records),
        "machine": machine,
    }
    return found, judgement.exit_status, conclusion(judgement)


def _builds(records: Iterable[Record]) -> list[list[str]]:
    """Backend, variant and what identifies its code: the build id, or the digest of sources."""
    return sorted(
        [r.backend, r.variant, r.detail.get("build_id") or r.detail.get("sources", "")]
        for r in records
        if r.check == "run.target"
    )


def _check_build(target: Target, build: str, installed: bool) -> Check:
    what = f"build of {target.backend}/{target.variant}"
    if not build:
        said = "the records say neither build id nor sources"
        return Check(what, "not checked", said, demanded=installed)
    if not installed:
        return Check(what, "not checked", f"{build}; --installed compares it", demanded=False)
    try:
        backend = load(target.backend, target.variant)
    except KvassayError as error:
        return Check(what, "differs", f"cannot be loaded here: {error}")
    return _same(what, build, backend.build_id or sources_of(type(backend)))


def _compared(name: str, certified: Any, found: Any) -> Sequence[Check]:
    """What differs in a part of the certificate, by the field, or that none does."""
    if _text(certified) == _text(found):
        return [Check(name, "holds", "as the records say")]
    if isinstance(certified, dict) and isinstance(found, dict):
        return [
            _same(f"{name}: {field}", certified.get(field), found.get(field))
            for field in sorted({*certified, *found})
            if _text(certified.get(field)) != _text(found.get(field))
        ]
    return [_same(name, certified, found)]


def _same(what: str, certified: Any, found: Any) -> Check:
    if _text(certified) == _text(found):
        return Check(what, "holds", str(certified))
    return Check(what, "differs", f"certified {certified or '-'}, found {found or '-'}")


def _text(value: Any) -> str:
    """JSON with sorted keys and no spaces: 1, 1.0 and true are three things."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _seal(content: Mapping[str, Any]) -> str:
    return _sha256(_text(content).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
