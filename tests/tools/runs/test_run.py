"""A run is read alike wherever its launches are: in memory, in a Parquet file, or in the files of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse import file_kinds
from ncu_parsers.parse.file_kinds import kind_of
from ncu_parsers.parse.parse_dataset import parse_into_dataset
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from ncu_parsers.sources.sources import Source

from ncu_tools.runs.loading import load
from ncu_tools.runs.run import PartInFile, PartInMemory, Run
from ncu_tools.runs.selection import Selection
from tests.conftest import SAMPLES
from tests.support.launches import launch, table

REPORT = SAMPLES / "d01-wide-raw.csv"


def noted() -> pa.Table:
    rows = table(launch("a", ns=1.0), launch("b", ns=2.0))
    return with_metadata(rows, {"schema_version": SCHEMA_VERSION, "notes": ["read so"]})


def in_file(folder: Path) -> Run:
    write_table(noted(), folder / "launches.parquet")
    return load(str(folder))


@pytest.mark.parametrize("place", [lambda _: Run.held("run", noted()), in_file], ids=["in memory", "in a file"])
def test_a_run_has_its_columns_and_notes_wherever_it_is(place: Callable[[Path], Run], tmp_path: Path) -> None:
    run = place(tmp_path)
    assert run.read(["duration_ns"]).column("duration_ns").to_pylist() == [1.0, 2.0]
    assert (run.notes, run.only(["duration_ns"]).notes) == (["read so"], ["read so"])
    assert run.contents().rows == 2
    assert "duration_ns" in run.contents().filled
    assert "flops" not in run.contents().filled
    assert sum(len(batch) for batch in run.batches()) == 2


def test_notes_that_are_told_stand_in_the_place_of_those_with_the_launches() -> None:
    assert Run.held("run", noted(), ["told"]).notes == ["told"]


def test_a_part_that_cannot_be_read_is_left_out_with_a_note(tmp_path: Path) -> None:
    missing = tmp_path / "missing.parquet"
    run = Run("run", [PartInFile(missing), PartInMemory(noted())])
    assert len(run.table) == 2
    assert run.notes[0] == "read so"
    assert run.notes[1].startswith(f"{missing} was left out: ")


def test_launches_selected_from_a_dataset_of_one_report_know_their_run(tmp_path: Path) -> None:
    parse_into_dataset(str(tmp_path / "fleet"), [Source(str(REPORT))], run="night")
    whole = load(str(tmp_path / "fleet"))
    assert set(Selection(devices=(0,)).of(whole).table.column("run").to_pylist()) == {"night"}


def test_the_first_bytes_of_a_report_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    head = Source.head

    def noted_head(self: Source, count: int) -> bytes:
        looked.append(count)
        return head(self, count)

    monkeypatch.setattr(Source, "head", noted_head)
    source = Source(str(REPORT))
    kinds = [kind_of(source), kind_of(source)]
    file_kinds.read_with([source])
    file_kinds.streamer_of(source)
    assert (kinds, looked) == ([None, None], [file_kinds.HEAD_BYTES])
