"""Histories in datasets, at URLs, and shared out to workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from ncu_parsers.datasets.process_engine import child_processes

from ncu_tools.history import runs_in_order
from ncu_tools.history.run_summary import FoundRun
from ncu_tools.history.runs_in_order import found_runs, ordered_runs
from tests.support.histories import counted, run_folder
from tests.support.ran import ran


def dataset(root: Path) -> Path:
    """A dataset of three runs, the last with other registers."""
    for number, registers in enumerate((32, 32, 40)):
        folder = root / f"run=v{number + 8}" / "rank=__HIVE_DEFAULT_PARTITION__" / "report=a.csv"
        run_folder(folder, counted("gemm", 100, registers=registers))
    return root


def test_a_dataset_is_a_history_of_its_runs_by_number_and_not_by_letters(tmp_path: Path) -> None:
    root = dataset(tmp_path / "set")
    assert [run.name for run in found_runs(str(root))] == ["v8", "v9", "v10"]
    done = ran("history", str(root), "--format", "json")
    (one,) = json.loads(done.stdout)["rows"]
    assert (one["run"], one["quantity"], one["after"]) == ("v10", "registers", 40)
    assert (root / "run=v9" / "history.parquet").is_file()


def test_a_url_holds_run_folders_and_nothing_is_written_there(tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for number, registers in enumerate((32, 40)):
        local = run_folder(tmp_path / f"r{number}", counted("gemm", 100, registers=registers)) / "launches.parquet"
        memory.pipe_file(f"/histories/r{number}/launches.parquet", local.read_bytes())
    done = ran("history", "memory://histories", "--format", "json")
    (one,) = json.loads(done.stdout)["rows"]
    assert (one["run"], one["before"], one["after"]) == ("r1", 32, 40)
    assert any("no date" in note for note in json.loads(done.stdout)["notes"])
    assert [Path(name).name for name in memory.find("/histories")] == ["launches.parquet"] * 2


@pytest.mark.slow
def test_runs_are_summed_by_workers_to_the_same(tmp_path: Path) -> None:
    for number in range(4):
        run_folder(tmp_path / f"r{number}", counted("gemm", 100 + number), f"2026-03-0{number + 1}T10:00:00+00:00")
    (tmp_path / "r2" / "launches.parquet").write_bytes(b"PAR1 cut")
    with child_processes(2) as engine:
        shared = ordered_runs([str(tmp_path)], engine=engine)
    alone = ordered_runs([str(tmp_path)])
    assert [run.name for run in shared.runs] == [run.name for run in alone.runs] == ["r0", "r1", "r3"]
    assert [run.facts for run in shared.runs] == [run.facts for run in alone.runs]
    assert shared.left_out == alone.left_out
    assert [run.column("time").tolist() for run in shared.runs] == [[100e3], [101e3], [103e3]]


@pytest.mark.parametrize(("most", "shared_out"), [(2, ["r0", "r1", "r2"]), (3, [])])
def test_many_runs_are_summed_by_processes_that_keep_the_sums(
    most: int, shared_out: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        run_folder(tmp_path / f"r{number}", counted("gemm", 100 + number), f"2026-03-0{number + 1}T10:00:00+00:00")
    asked = list[str]()

    class Children:
        def map(self, function: Callable[[FoundRun], bool], items: Sequence[FoundRun]) -> Iterator[bool]:
            asked.extend(run.name for run in items)
            return map(function, items)

    monkeypatch.setattr(runs_in_order, "MOST_ALONE", most)
    monkeypatch.setattr(runs_in_order, "child_processes", lambda count: nullcontext(Children()))
    first, again = (ordered_runs([str(tmp_path)]) for _ in range(2))
    assert asked == shared_out
    assert [run.column("time").tolist() for run in first.runs] == [[100e3], [101e3], [102e3]]
    assert [run.facts for run in first.runs] == [run.facts for run in again.runs]
