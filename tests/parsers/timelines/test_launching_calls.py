"""Which call launched a kernel, in files of several processes that give the same correlation ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import MISSING
from ncu_parsers.timelines.kineto.kineto import read_activity

from tests.parsers.timelines.test_kineto import A100, read, rows

ADD, MUL = "aten::add", "aten::mul"


def launched(
    process: int, name: str, correlation: int, *, operator: int | None, says: int | None, device: int
) -> list[dict[str, Any]]:
    """A process calls an operator of an external id, which launches a kernel on a device that `says` an external id."""
    start = 100 * correlation + 10 * process
    of_call: dict[str, Any] = {} if operator is None else {"External id": operator}
    of_kernel: dict[str, Any] = {} if says is None else {"External id": says}
    host = {"ph": "X", "pid": process, "tid": process}
    return [
        {**host, "cat": "cpu_op", "name": name, "ts": start, "dur": 6, "args": of_call},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 1, "dur": 1,
         "args": {"correlation": correlation}},
        {"ph": "X", "cat": "kernel", "name": f"k_{name}", "pid": device, "tid": 7, "ts": start + 50, "dur": 5,
         "args": {"correlation": correlation, "device": device, "stream": 7, **of_kernel}},
    ]  # fmt: skip


def operators_of(folder: Path, *events: list[dict[str, Any]]) -> tuple[dict[str, set[str | None]], list[str]]:
    """The operators of each kernel's launches, and the notes."""
    report = read(folder, {"deviceProperties": [A100], "traceEvents": [event for some in events for event in some]})
    found: dict[str, set[str | None]] = {}
    for row in rows(report):
        found.setdefault(row["kernel_name"], set()).add(row.get("operator"))
    return found, report.notes


def processes_of(folder: Path) -> list[int]:
    return [int(one) for one in read_activity(Source(str(folder / "trace.json"))).operations.process]


def test_the_external_id_tells_which_process_launched_a_kernel(tmp_path: Path) -> None:
    events = [
        launched(process, name, one, operator=one + more, says=one + more, device=0)
        for one in (1, 2)
        for process, name, more in ((1, ADD, 10), (2, MUL, 50))
    ]
    found, notes = operators_of(tmp_path, *events)
    assert found == {"k_aten::add": {ADD}, "k_aten::mul": {MUL}}
    assert processes_of(tmp_path) == [1, 2, 1, 2]
    assert not any("correlation ids" in note for note in notes)


def test_where_external_ids_are_alike_too_the_devices_tell_if_each_process_has_its_own(tmp_path: Path) -> None:
    alike = [launched(p, name, 1, operator=5, says=5, device=p) for p, name in ((1, ADD), (2, MUL))]
    own = [launched(p, name, p + 1, operator=p + 5, says=p + 5, device=p) for p, name in ((1, ADD), (2, MUL))]
    found, notes = operators_of(tmp_path, *alike, *own)
    assert found == {"k_aten::add": {ADD}, "k_aten::mul": {MUL}}
    assert not any("correlation ids" in note for note in notes)


def test_what_nothing_tells_is_unknown_and_a_note_says_so(tmp_path: Path) -> None:
    alike = [launched(p, name, 1, operator=5, says=5, device=0) for p, name in ((1, ADD), (2, MUL))]
    found, notes = operators_of(tmp_path, *alike)
    assert found == {"k_aten::add": {None}, "k_aten::mul": {None}}
    assert any("have the same correlation ids: of 2 rows" in note for note in notes)
    assert processes_of(tmp_path) == [MISSING, MISSING]
    assert any("of 2 rows" in note for note in read_activity(Source(str(tmp_path / "trace.json"))).notes)


def test_a_kernel_of_an_operator_that_no_process_has_is_unknown(tmp_path: Path) -> None:
    events = [launched(p, name, 1, operator=p, says=99, device=p) for p, name in ((1, ADD), (2, MUL))]
    assert operators_of(tmp_path, *events)[0] == {"k_aten::add": {None}, "k_aten::mul": {None}}


def test_ids_of_one_process_need_no_external_id(tmp_path: Path) -> None:
    events = [launched(p, name, p, operator=None, says=None, device=0) for p, name in ((1, ADD), (2, MUL))]
    assert operators_of(tmp_path, *events)[0] == {"k_aten::add": {ADD}, "k_aten::mul": {MUL}}
    assert processes_of(tmp_path) == [1, 2]


def test_an_external_id_that_is_no_number_is_as_none(tmp_path: Path) -> None:
    events = launched(1, ADD, 1, operator=None, says=None, device=0)
    events[0]["args"]["External id"] = json.loads('{"a": []}')
    assert operators_of(tmp_path, events)[0] == {"k_aten::add": {ADD}}
