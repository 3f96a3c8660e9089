"""Verdicts as JUnit XML: a test suite a backend and preset, a test case a rule.

A rule that rejects is a failure, one that was not measured an error, so that no reader of the file
takes it for a pass. Baselines and controls are never judged: what they break is a skipped case
whose message says so. The dialect is the common one of Jenkins, GitLab and GitHub's readers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from xml.etree import ElementTree

from ..judging.gate import Judgement, Verdict
from ..judging.rules import Outcome
from ..judging.wording import conclusion, describe, figure, who
from ..writing import write_text

_WORST_SHOWN = 3
_Counts = dict[str, int]


def render_junit(judgement: Judgement) -> str:
    """The verdicts as XML."""
    root = ElementTree.Element("testsuites", name="kvassay")
    totals: _Counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for verdict in judgement.verdicts:
        _add(totals, _suite(root, verdict))
    if judgement.problem:  # nothing could be judged, which is no pass
        suite = ElementTree.SubElement(root, "testsuite", name="kvassay.gate")
        case = ElementTree.SubElement(suite, "testcase", classname="kvassay", name="gate")
        ElementTree.SubElement(case, "error", message=conclusion(judgement))
        _add(totals, _count(suite))
    root.attrib.update({name: str(count) for name, count in totals.items()})
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def write_junit(path: str | os.PathLike[str], judgement: Judgement) -> None:
    """Write the file; raises WriteError where it cannot be written."""
    write_text("JUnit file", path, render_junit(judgement))


def _suite(root: ElementTree.Element, verdict: Verdict) -> _Counts:
    name = who(verdict)
    suite = ElementTree.SubElement(root, "testsuite", name=name)
    for outcome in verdict.outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=outcome.rule.name)
        _judge(case, verdict, outcome)
    return _count(suite)


def _judge(case: ElementTree.Element, verdict: Verdict, outcome: Outcome) -> None:
    said = f"{outcome.state}: {outcome.rule.title}"
    if outcome.state in ("outside scope", "does not apply"):
        ElementTree.SubElement(case, "skipped", message=f"{outcome.state}: {outcome.note}")
    elif outcome.state != "pass" and not verdict.judged:
        ElementTree.SubElement(case, "skipped", message=f"{verdict.role}, never judged; {said}")
    elif outcome.state == "reject":
        found = f"{said}; {outcome.rule.threshold}, found {figure(outcome.value, outcome.rule)}"
        failure = ElementTree.SubElement(case, "failure", message=found)
        failure.text = _printable("\n".join(_evidence(outcome)))
    elif outcome.state == "not measured":
        ElementTree.SubElement(case, "error", message=f"{said}; {outcome.note}")


def _evidence(outcome: Outcome) -> Iterable[str]:
    for record in outcome.records[:_WORST_SHOWN]:
        yield describe(record, outcome.rule)
        if record.reproduce:
            yield f"  again: {record.reproduce}"
    yield f"what would change it: {outcome.rule.remedy}"


def _printable(text: str) -> str:
    """XML has no control characters; evidence may hold what a dying process printed."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


def _count(suite: ElementTree.Element) -> _Counts:
    counts = {"tests": len(suite)}
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[name] = len(suite.findall(f"testcase/{tag}"))
    suite.attrib.update({name: str(count) for name, count in counts.items()})
    return counts


def _add(totals: _Counts, counts: _Counts) -> None:
    for name, count in counts.items():
        totals[name] += count
