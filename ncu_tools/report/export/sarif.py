"""Kernels that tripped a gate as SARIF 2.1.0, which GitHub shows at the line of a pull request.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True)
class SarifFinding:
    """A tripped gate at a place: the gate, a sentence, the file relative to the repository, and the line if known."""

    gate: str
    message: str
    file: str
    line: int | None


def to_sarif(findings: Sequence[SarifFinding], gates: Sequence[str], version: str) -> bytes:
    """The findings as a SARIF document, in which each gate is a rule."""
    driver = {
        "name": "ncu-bench",
        "version": version,
        "rules": [{"id": gate, "shortDescription": {"text": f"{gate} of a kernel's code"}} for gate in gates],
    }
    results = [_result(one, gates.index(one.gate)) for one in findings]
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "utf16CodeUnits"}
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1, ensure_ascii=True).encode() + b"\n"


def _result(one: SarifFinding, rule: int) -> dict[str, object]:
    place: dict[str, object] = {"artifactLocation": {"uri": one.file}}
    if one.line is not None:
        place["region"] = {"startLine": one.line}
    return {
        "ruleId": one.gate, "ruleIndex": rule, "level": "error", "message": {"text": one.message},
        "locations": [{"physicalLocation": place}],
    }  # fmt: skip
