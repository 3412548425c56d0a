"""Queries on Parquet files give the answer of the whole table, but read only what they need.

Damage shows what is read: a query on a file with a changed page succeeds if it does not need that page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse, parse_into
from ncu_parsers.parse.parse_dataset import parse_into_dataset
from ncu_parsers.sources.sources import Source

from ncu_tools.runs.loading import on_disk
from ncu_tools.runs.run import Run
from tests.conftest import SAMPLES
from tests.parsers.datasets.test_datasets import bench, shown
from tests.support.nightly import one_in

pytest.importorskip("duckdb", reason="duckdb is not installed (pip install '.[query]')")

FIRST, SECOND = SAMPLES / "d01-wide-raw.csv", SAMPLES / "d02-long-rules.csv"
ROWS_OF_A_GROUP = 2


@pytest.fixture
def grouped(tmp_path: Path) -> Path:
    """A file of ten launches in five row groups, with ids that increase from group to group."""
    table = pa.concat_tables([parse([Source(str(FIRST))]).table] * 5).slice(0, 10)
    ids = pa.array(range(10), table.schema.field("launch_id").type)
    table = table.set_column(table.schema.get_field_index("launch_id"), table.schema.field("launch_id"), ids)
    file = tmp_path / "launches.parquet"
    pq.write_table(table, file, row_group_size=ROWS_OF_A_GROUP, write_page_checksum=True)
    return file


def damage(file: Path, column: str, group: int) -> None:
    """Change the last byte of a column in a row group."""
    metadata = pq.ParquetFile(file).metadata.row_group(group)
    (chunk,) = (one for one in map(metadata.column, range(metadata.num_columns)) if one.path_in_schema == column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(file.read_bytes())
    data[start + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes(data)


class TestAFile:
    def test_gives_the_same_answer_as_the_whole_table(self, grouped: Path) -> None:
        asked = "SELECT kernel_name, launch_id, grid, duration_ns FROM launches WHERE launch_id >= 3 ORDER BY launch_id"
        table = read_launches(grouped).select(["kernel_name", "launch_id", "grid", "duration_ns"])
        assert shown("query", str(grouped), asked)["rows"] == table.slice(3).to_pylist()

    def test_can_be_filtered_by_dictionary_encoded_texts(self, grouped: Path) -> None:
        names = read_launches(grouped).column("kernel_name").to_pylist()
        (name,) = {name for name in names if name.startswith("void sgemm")}
        asked = "SELECT count(*) AS n FROM launches WHERE kernel_name = '{}'"
        assert shown("query", str(grouped), asked.format(name))["rows"] == [{"n": names.count(name)}]

    def test_columns_that_a_query_does_not_name_are_not_read(self, grouped: Path) -> None:
        damage(grouped, "duration_ns", 1)
        assert shown("query", str(grouped), "SELECT max(launch_id) AS last FROM launches")["rows"] == [{"last": 9}]
        result = bench("query", str(grouped), "SELECT max(duration_ns) FROM launches")
        assert result.exit_code == 1, result.stderr
        assert "Launches could not be read to their end" in result.stderr
        assert "checksum" in result.stderr

    def test_row_groups_in_which_a_condition_cannot_hold_are_not_read(self, grouped: Path) -> None:
        damage(grouped, "duration_ns", 1)
        asked = "SELECT count(duration_ns) AS n FROM launches WHERE launch_id >= 4"
        assert shown("query", str(grouped), asked)["rows"] == [{"n": 6}]
        assert bench("query", str(grouped), asked.replace(">= 4", ">= 3")).exit_code == 1

    def test_kernels_are_summed_only_if_a_query_names_them(self, grouped: Path) -> None:
        damage(grouped, "duration_ns", 0)
        assert bench("query", str(grouped), "SELECT launch_id FROM launches").exit_code == 0
        assert bench("query", str(grouped), "SELECT kernel FROM kernels").exit_code == 1


class TestADataset:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        """Two runs whose reports have different metrics."""
        root = tmp_path / "fleet"
        for run, report in (("first", FIRST), ("second", SECOND)):
            parse_into_dataset(str(root), [Source(str(report))], run=run)
        return root

    def test_gives_the_same_answer_as_the_whole_table(self, root: Path) -> None:
        asked = "SELECT * FROM launches"
        whole = run_of(root).table
        rows = shown("query", str(root), asked)["rows"]
        assert len(rows) == len(whole)
        for name in ("run", "kernel_name", "grid", "duration_ns", "dram_bytes"):
            assert [row[name] for row in rows] == whole.column(name).to_pylist()

    def test_files_of_other_runs_are_not_read(self, root: Path) -> None:
        (file,) = root.glob("run=first/**/launches.parquet")
        damage(file, "duration_ns", 0)
        asked = "SELECT count(duration_ns) > 0 AS some FROM launches WHERE run = 'second'"
        assert shown("query", str(root), asked)["rows"] == [{"some": True}]
        assert bench("query", str(root), asked.replace("second", "first")).exit_code == 1

    def test_skips_a_file_that_is_not_parquet_with_a_note(self, root: Path) -> None:
        (file,) = root.glob("run=first/**/launches.parquet")
        file.write_bytes(b"PAR1 no more")
        result = bench("query", str(root), "SELECT DISTINCT run FROM launches")
        assert "second" in result.stdout
        assert "first" not in result.stdout
        assert "was left out" in result.stderr

    def test_with_different_column_types_is_read_at_once(self, root: Path) -> None:
        (file,) = root.glob("run=first/**/launches.parquet")
        table = read_launches(file)
        index = table.schema.get_field_index("context")
        write_table(table.set_column(index, "context", table.column(index).cast(pa.int32())), file)
        assert isinstance(run_of(root).scanned()[0](), pa.Table)
        assert len(shown("query", str(root), "SELECT context FROM launches")["rows"]) == len(run_of(root).table)

    def test_may_be_at_a_url(self, root: Path) -> None:
        fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (pip install '.[remote]')")
        system = fsspec.filesystem("memory")
        try:
            for file in root.rglob("*.parquet"):
                system.pipe_file(f"/scanned/{file.relative_to(root)}", file.read_bytes())
            asked = "SELECT run, sum(duration_ns) AS ns FROM launches GROUP BY run ORDER BY run"
            assert shown("query", "memory://scanned", asked)["rows"] == shown("query", str(root), asked)["rows"]
        finally:
            system.rm("/scanned", recursive=True)


def run_of(root: Path) -> Run:
    found = on_disk(str(root))
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sample", one_in(2, ["d01-wide-raw.csv", "d02-long-rules.csv"]))
def test_a_flipped_bit_in_a_page_is_detected(sample: str, tmp_path: Path) -> None:
    file = tmp_path / "launches.parquet"
    parse_into(file, [Source(str(SAMPLES / sample))])
    whole, sound = file.read_bytes(), read_launches(file)
    outcomes = [_outcome(file, changed, sound) for changed in _with_a_changed_bit(whole)]
    assert "wrong" not in outcomes
    assert outcomes.count("error") > len(outcomes) / 4


def _with_a_changed_bit(whole: bytes) -> Iterator[bytes]:
    """Yield the file with one bit changed, at 150 positions before the footer."""
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at, bit in zip(np.linspace(4, footer - 1, 150).astype(int), np.arange(150) % 8, strict=True):
        changed = bytearray(whole)
        changed[at] ^= 1 << int(bit)
        yield bytes(changed)


def _outcome(file: Path, changed: bytes, sound: pa.Table) -> str:
    """Bytes between pages are unused; changing them has no effect."""
    file.write_bytes(changed)
    try:
        return "same" if read_launches(file).equals(sound) else "wrong"
    except NcuBenchError:
        return "error"
