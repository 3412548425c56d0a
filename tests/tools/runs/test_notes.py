"""Notes on pooled runs, missing metrics and other kinds of input; they stay short."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from ncu_launch.counters.chips import chips
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import run
from tests.conftest import SAMPLES
from tests.support.launches import launch, sass, table

RAW, METRICS = str(SAMPLES / "d01-wide-raw.csv"), str(SAMPLES / "d04-long-metrics.csv")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    assert run(list(arguments)) == code
    found = capsys.readouterr()
    return found.out, found.err


def test_several_runs_are_noted_as_pooled(capsys: pytest.CaptureFixture[str]) -> None:
    pooled = "the launches of all 2 runs are taken together; ncu-bench compare tells runs apart"
    assert pooled in said(capsys, "hotspots", RAW, METRICS)[1]
    assert "together" not in said(capsys, "hotspots", RAW)[1]


@pytest.mark.parametrize("command", ["hotspots", "report", "layers"])
def test_a_folder_of_measured_points_is_recognised(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(bench_table([]), tmp_path / "bench.parquet")
    output = ["-o", str(tmp_path / "x.html")] if command == "report" else []
    error = said(capsys, command, str(tmp_path), *output, code=1)[1]
    assert "is a table of measured points, not of launches. Look at it with: ncu-bench bench" in error


def test_notes_on_metrics_that_are_missing_stay_short(capsys: pytest.CaptureFixture[str]) -> None:
    for sample in sorted(SAMPLES.glob("d0*.csv")):
        for line in said(capsys, "hotspots", str(sample))[1].splitlines():
            assert len(line) < 400, line


def test_constant_moves_need_no_ceiling_of_a_data_sheet(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample has the peaks of all units with work at the profiled clock: no percentage of a bound reads low."""
    assert "read low" not in said(capsys, "hotspots", RAW)[1]


def test_a_pipe_is_opened_once_and_not_looked_at_as_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, words in enumerate((["roofline"], ["query", "SELECT count(*) FROM launches"])):
        pipe = tmp_path / f"pipe{number}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(Path(RAW).read_bytes(),))
        writer.start()
        from_pipe = said(capsys, words[0], str(pipe), *words[1:])[0]
        writer.join()
        assert from_pipe.replace(pipe.name, Path(RAW).name) == said(capsys, words[0], RAW, *words[1:])[0]


class TestDiagnoses:
    def of(
        self, folder: Path, source: str, capsys: pytest.CaptureFixture[str], *, counted: bool = True
    ) -> tuple[list[str | None], list[str]]:
        one = launch("k", sass(ffma=1e6), ns=1e6, dram=1e6, capability="6.1")
        found = table(one if counted else launch("k", ns=1e6))
        column = found.column_names.index("source")
        field = found.field(column)
        found = found.set_column(column, field, pa.array([source], field.type))
        write_table(with_metadata(found, {"schema_version": SCHEMA_VERSION}), folder / "launches.parquet")
        document = json.loads(said(capsys, "hotspots", str(folder), "--diagnose", "--format", "json")[0])
        return [row["diagnosis"] for row in document["rows"]], document["notes"]

    def test_say_what_to_collect_where_no_utilisation_is_known(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (sentence,), _ = self.of(tmp_path, "ncu", capsys)
        assert sentence is not None
        assert sentence.startswith("utilisations were not collected: ncu --set full")

    def test_if_missing_are_noted_with_the_reason(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        found, notes = self.of(tmp_path, "operators", capsys, counted=False)
        assert found == [None]
        assert any("no levers of 1 kernel: their launches have no counters of ncu" in note for note in notes)


def test_chips_unknown_to_the_newest_ncu_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "machines", "--metrics", "time", "--all-chips", "--format", "csv")
    assert len(out.splitlines()) - 1 + 2 == len(chips()) == 33
    assert "2 of 33 chips are not known to the newest ncu: GV100 (up to 2025.3), GV11B (up to 2025.3)" in err
