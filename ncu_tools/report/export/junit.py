"""Gates as JUnit XML, which CI systems show beside a pull request: one test case per gate and comparison."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

from ncu_tools.compare.gate import NOT_EVALUATED, NOT_SHOWN_TO_TRIP, REFUSED, TRIPPED, GateOutcome
from ncu_tools.report.table import printable

SUITES = ("ncu-bench compare", "ncu-bench history")
MOST_BEGINNING = 400
_BEGINNING = re.compile(rb"<\?xml[^>]*>\s*<testsuites>\s*<testsuite name=\"(?:" + "|".join(SUITES).encode() + b")")
_NOT_IN_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def to_junit(outcomes: Mapping[str, Sequence[GateOutcome]], suite_name: str = SUITES[0]) -> bytes:
    """The outcomes of each new run as an XML document: tripped is a failure, not evaluated and refused are errors."""
    every = [one for ones in outcomes.values() for one in ones]
    suites = ET.Element("testsuites")
    suite = ET.SubElement(
        suites, "testsuite", name=suite_name, tests=str(len(every)),
        failures=str(sum(one.outcome == TRIPPED for one in every)),
        errors=str(sum(one.outcome in (NOT_EVALUATED, REFUSED) for one in every)),
    )  # fmt: skip
    for run, ones in outcomes.items():
        for one in ones:
            _add_case(suite, run, one)
    ET.indent(suites)
    document: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def remove_old_gates(path: Path) -> None:
    """Remove a file that `to_junit` made; any other file stays, since it may be named by mistake."""
    if path.is_file() and _BEGINNING.match(_first_bytes(path)):
        path.unlink()


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BEGINNING)


def _add_case(suite: ET.Element, run: str, one: GateOutcome) -> None:
    case = ET.SubElement(suite, "testcase", classname=_plain(run), name=_plain(one.gate.text))
    reason = _plain(one.reason)
    if one.outcome == TRIPPED:
        ET.SubElement(case, "failure", message=reason).text = reason
    elif one.outcome in (NOT_EVALUATED, REFUSED):
        ET.SubElement(case, "error", message=reason).text = reason
    else:
        prefix = f"{one.outcome}: " if one.outcome == NOT_SHOWN_TO_TRIP else ""
        ET.SubElement(case, "system-out").text = prefix + reason


def _plain(text: str) -> str:
    """Text without characters that XML 1.0 forbids."""
    return _NOT_IN_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))
