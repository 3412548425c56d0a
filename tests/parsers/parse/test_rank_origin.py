"""Rank, host and device of reports in the run folder of a distributed run; other reports have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parse.parse import RankOrigin, by_origin, origin_of, with_origin
from ncu_parsers.report_data.report import Report

from tests.support.launches import launch, table


def report_in(folder: Path, manifest: Any = None, state: Any = None) -> str:
    """The path of a report in the `reports` folder of a run folder with this manifest."""
    (folder / "reports").mkdir(parents=True)
    for name, content in (("manifest.json", manifest), ("state.json", state)):
        if content is not None:
            (folder / name).write_text(json.dumps(content), "utf-8")
    return str(folder / "reports" / "report.csv")


def test_a_report_gets_rank_host_and_device_from_its_manifest(tmp_path: Path) -> None:
    path = report_in(tmp_path, {"place": {"rank": 3, "host": "node1"}, "facts": {"device_id": 1}})
    assert origin_of(path) == RankOrigin("node1", 3, 1)
    rows = with_origin(table(launch(), launch()), path).to_pylist()
    assert [(row["rank"], row["host"], row["device_id"]) for row in rows] == [(3, "node1", 1)] * 2


def test_a_killed_rank_is_identified_by_its_folder(tmp_path: Path) -> None:
    assert origin_of(report_in(tmp_path / "ranks" / "12")) == RankOrigin(None, 12)
    assert origin_of(report_in(tmp_path / "ranks" / "last")) is None


def test_processes_of_a_node_have_their_ranks_and_others_none(tmp_path: Path) -> None:
    processes = [{"process_id": 7, "rank": 0}, {"process_id": 8, "rank": 1}, {"process_id": "9", "rank": 2}, "x"]
    path = report_in(tmp_path, {"place": {"host": "node1", "processes": processes}})
    launches = [launch(process_id=process) for process in (8, 7, 9, None)]
    assert with_origin(table(*launches), path).column("rank").to_pylist() == [1, 0, None, None]


def test_the_reports_own_device_numbers_are_not_replaced(tmp_path: Path) -> None:
    path = report_in(tmp_path, {"place": {"rank": 0}, "facts": {"device_id": 1}})
    assert with_origin(table(launch(device_id=5)), path).column("device_id").to_pylist() == [5]


@pytest.mark.parametrize(
    "place", [{"rank": True}, {"rank": -1}, {"rank": "1"}, {"rank": 2**31}], ids=["truth", "negative", "text", "big"]
)
def test_an_invalid_rank_is_unknown(tmp_path: Path, place: Any) -> None:
    assert origin_of(report_in(tmp_path, {"place": place})) == RankOrigin(None)


@pytest.mark.parametrize("manifest", [None, {}, {"place": []}, {"place": {}}, [1]])
def test_a_report_of_a_run_that_was_not_distributed_has_no_origin(tmp_path: Path, manifest: Any) -> None:
    path = report_in(tmp_path, manifest)
    assert origin_of(path) is None
    one = table(launch())
    assert with_origin(one, path) is one


def test_reports_of_two_ranks_are_never_joined(tmp_path: Path) -> None:
    first, second = (report_in(tmp_path / "ranks" / name) for name in ("0", "1"))
    other = Report(str(Path(first).with_name("sections.csv")))
    reports = [Report("a.csv"), Report(first), Report(second), Report("b/c.csv"), other]
    assert by_origin(reports) == [[reports[0], reports[3]], [reports[1], other], [reports[2]]]
