"""Reports without measure: lines, names, numbers and files that no profiler writes take bounded memory and are refused in
a paragraph, and the reports beside them are read. `python -m tests.support.limits` tries them at their full size.
"""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.datasets.process_engine import child_processes
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.launches.nsys import call_sites
from ncu_parsers.parquet.footer import DamagedFooter, columns_of
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse.parse import parse, parse_into
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.sources import memory
from ncu_parsers.sources.memory import SETTING, TooBig, limit, size_of
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.streaming.streaming_reader import stream_report
from ncu_parsers.timelines.nsys.database import LONGEST_VALUE

from ncu_tools.cli import run
from ncu_tools.runs.run import Run
from tests.conftest import SAMPLES
from tests.support.limits import measured, wide, with_line, with_values
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed, table_of

pytestmark = pytest.mark.slow

RAW = SAMPLES / "d01-wide-raw.csv"
MEGABYTE = 1_000_000


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit under which a line may have 4 MB."""
    monkeypatch.setenv(SETTING, "256MB")
    monkeypatch.setattr(memory, "resident", lambda: 0)


def saved(folder: Path, text: str, name: str = "report.csv") -> Source:
    (folder / name).write_text(text, "utf-8")
    return Source(str(folder / name))


def limit_there(item: int) -> int:
    """The limit of the process that works on an item."""
    return limit()


class TestTheSetting:
    @pytest.mark.parametrize(
        ("text", "size"),
        [("512MB", 512e6), ("1.5gb", 1.5e9), ("2GiB", 2 << 30), ("300000000", 3e8), (" 8 GB ", 8e9), ("1T", 1e12)],
    )
    def test_is_a_size_with_its_unit(self, text: str, size: float) -> None:
        assert size_of(text) == size

    @pytest.mark.parametrize("text", ["", "lots", "-1GB", "1e9", "3", "255MB", "GB", "1 PB", "nan", "9" * 5000])
    def test_is_refused_if_it_is_not_a_size(self, text: str) -> None:
        with pytest.raises(WrongUsage, match="no limit for memory"):
            size_of(text)

    def test_is_two_gigabytes_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(SETTING, raising=False)
        assert limit() == 2e9

    def test_of_the_option_is_checked_before_anything_is_read(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--memory-limit", "3", "hotspots", str(RAW)]) == 2
        assert "no limit for memory" in capsys.readouterr().err


@pytest.mark.usefixtures("small_limit")
class TestALine:
    def test_that_is_too_long_is_counted_and_the_rows_around_it_are_read(self, tmp_path: Path) -> None:
        report = read_report(saved(tmp_path, with_line("x" * 5 * MEGABYTE)))
        assert report.rows == 8
        assert report.skipped["line too long to be read"] == 1
        assert report.examples["line too long to be read"] == (10, "x" * 200)

    def test_that_is_too_long_is_counted_by_the_fast_readers_too(self, tmp_path: Path) -> None:
        long = saved(tmp_path, with_line("x" * 5 * MEGABYTE))
        parsed = parse_into(tmp_path / "launches.parquet", [long])
        assert parsed.reports[0].skipped["line too long to be read"] == 1
        assert len(read_launches(tmp_path / "launches.parquet")) == 8

    def test_that_is_the_whole_file_is_refused_with_the_setting_to_change(self, tmp_path: Path) -> None:
        with pytest.raises(NcuBenchError, match=r"lines longer than the 4,000,000 characters .* --memory-limit"):
            read_report(saved(tmp_path, "x" * 5 * MEGABYTE))

    @pytest.mark.parametrize("end", ["\n", ""])
    def test_may_be_the_last(self, end: str, tmp_path: Path) -> None:
        report = read_report(saved(tmp_path, RAW.read_text("utf-8") + "x" * 5 * MEGABYTE + end))
        assert (report.rows, report.skipped["line too long to be read"]) == (8, 1)
        assert report.lines.total() == len(RAW.read_text("utf-8").splitlines()) + 1


class TestNumbers:
    @pytest.mark.parametrize("value", [str(2**64), "1" + "0" * 308, "9" * 5000, "-" + str(2**64)])
    def test_of_any_size_are_read_or_left_out(self, value: str, tmp_path: Path) -> None:
        (report,) = parse([saved(tmp_path, with_values(value))]).reports
        times = [launch.metrics.get("gpu__time_duration.sum") for launch in report.launches]
        assert all(one is None or isinstance(one.value, str) or one.value == float(value) for one in times)

    @pytest.mark.parametrize("form", ["text", "json", "csv", "markdown"])
    @pytest.mark.parametrize("value", [str(2**64), "1" + "0" * 308, "9" * 5000])
    def test_of_any_size_are_shown(
        self, form: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        report = saved(tmp_path, with_values(value))
        assert run(["hotspots", report.path, "--format", form]) == 0
        said = capsys.readouterr()
        assert "Warning" not in said.err
        assert "inf" not in said.out.lower().replace("infer", "")

    def test_as_ids_are_never_a_reason_to_lose_the_file(self, tmp_path: Path) -> None:
        row = ",".join(f'"{cell}"' for cell in [2**64, 2**64, *[""] * 60])
        report = read_report(saved(tmp_path, with_line(row)))
        assert report.rows >= 8


class TestColumns:
    def test_of_many_metrics_are_all_read(self, tmp_path: Path) -> None:
        table = parse([saved(tmp_path, wide(6000, rows=2))]).table
        assert table is not None
        assert table.column("unit__metric_005999.sum").to_pylist() == [5999.0, 5999.0]

    def test_of_too_many_metrics_for_batches_go_to_the_plain_reader(self, tmp_path: Path) -> None:
        with pytest.raises(NotStreamed, match="columns are unusual"):
            stream_report(saved(tmp_path, wide(5000, rows=2)), lambda table: None)


class TestPackedFiles:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "LARGE_UNPACKED", 4 * MEGABYTE)

    @pytest.mark.parametrize("head", [b"", b"SQLite format 3\0", b"NVR\0", b"{", b"\n\n"])
    @pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
    def test_that_are_bombs_are_refused_and_the_others_read(
        self, head: bytes, pack: Callable[[bytes], bytes], tmp_path: Path
    ) -> None:
        bomb = tmp_path / "bomb.csv.gz"
        bomb.write_bytes(pack(head + bytes(20 * MEGABYTE)))
        parsed = parse([Source(str(bomb)), Source(str(RAW))])
        assert "unpacks to more than 300 times its size" in parsed.refused[str(bomb)].paragraph
        assert [report.rows for report in parsed.reports] == [8]

    def test_inside_each_other_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "r.csv.gz").write_bytes(gzip.compress(gzip.compress(RAW.read_bytes())))
        with pytest.raises(NcuBenchError, match="is compressed more than once"):
            read_report(Source(str(tmp_path / "r.csv.gz")))

    def test_that_are_reports_are_read_whatever_their_size(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory, "LARGE_UNPACKED", 100_000)
        (tmp_path / "r.csv.gz").write_bytes(gzip.compress(wide(3000, rows=12).encode()))
        assert read_report(Source(str(tmp_path / "r.csv.gz"))).rows == 12

    def test_with_databases_use_limited_disk_space(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "MOST_ON_DISK", 0.01)
        (tmp_path / "t.sqlite.gz").write_bytes(gzip.compress(b"SQLite format 3\0" + os.urandom(30 * MEGABYTE), 1))
        before = sorted(tmp_path.iterdir())
        parsed = parse([Source(str(tmp_path / "t.sqlite.gz"))])
        assert "unpacks to more than 20MB" in next(iter(parsed.refused.values())).paragraph
        assert sorted(tmp_path.iterdir()) == before


class TestTimelines:
    """Texts of SQLite exports, made of zero bytes by SQLite itself."""

    @pytest.fixture(autouse=True)
    def removed_at_once(self, tmp_path: Path) -> Iterator[None]:
        """Pytest keeps the folders of three runs, and these files are 1 GB of each."""
        yield
        (tmp_path / "t.sqlite").unlink()

    def exported(self, folder: Path, *sizes: int, kind: str = "TEXT") -> Path:
        path = database(folder / "t.sqlite", {KERNELS: [kernel(5, 1), kernel(25, 2, name=2)], CALLS: [call(4, 1)]})
        with sqlite3.connect(path) as connection:
            holes = f"INSERT INTO StringIds VALUES (?, CAST(zeroblob(?) AS {kind}))"  # noqa: S608
            connection.executemany(holes, enumerate(sizes, start=2))
        connection.close()
        return path

    def test_with_too_many_texts_are_refused_before_they_fill_the_memory(self, tmp_path: Path) -> None:
        path = self.exported(tmp_path, *[3 * MEGABYTE] * 150)
        result = measured("parse", str(path), "-o", str(tmp_path / "l.parquet"), folder=tmp_path, limit="256MB")
        assert result.code == 1
        assert "t.sqlite was not read to its end, because that would take more memory than 256MB" in result.said
        assert result.megabytes < 256

    def test_with_too_long_texts_are_read_without_these(self, tmp_path: Path) -> None:
        path = self.exported(tmp_path, *[8 * MEGABYTE] * 50)
        result = measured(
            "parse", str(path), "-o", str(tmp_path / "l.parquet"), "--notes", folder=tmp_path, limit="256MB"
        )
        assert result.code == 0
        assert "texts of more than 4,000,000 bytes were left out 50 times" in " ".join(result.said.split())
        assert result.megabytes < 256
        names = read_launches(tmp_path / "l.parquet").column("kernel_name").to_pylist()
        assert names == ["void gemm<1>(int)", "(kernel without a name)"]

    def test_with_an_enormous_text_are_refused_with_its_size(self, tmp_path: Path) -> None:
        with pytest.raises(NcuBenchError, match="holds a text of more than 64 MB, and was not read"):
            table_of(self.exported(tmp_path, LONGEST_VALUE + 1))

    def test_with_bytes_instead_of_texts_are_read_without_loading_them(self, tmp_path: Path) -> None:
        assert len(table_of(self.exported(tmp_path, LONGEST_VALUE + 1, kind="BLOB"))) == 2


class TestMemory:
    @pytest.fixture(autouse=True)
    def collections(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Noted and not done: the garbage of all tests takes long to collect."""
        noted: list[bool] = []
        monkeypatch.setattr(memory, "gc", SimpleNamespace(collect=lambda: noted.append(True)))
        return noted

    def test_that_runs_out_refuses_the_report_and_is_freed(self, tmp_path: Path) -> None:
        rows = "".join(f'{{"ph":"X","cat":"kernel","name":"k{at}","ts":{at},"dur":1}},\n' for at in range(500_000))
        saved(tmp_path, '{"traceEvents": [' + rows, "trace.json")
        files = [str(tmp_path / "trace.json"), str(RAW)]
        result = measured("parse", *files, "-o", str(tmp_path / "launches.parquet"), folder=tmp_path, limit="256MB")
        assert result.code == 1
        assert "trace.json was not read to its end, because that would take more memory than 256MB" in result.said
        assert result.megabytes < 256
        assert len(read_launches(tmp_path / "launches.parquet")) == 8

    def test_is_freed_before_anything_is_refused(
        self, collections: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = iter([1e8, 2e9, 1e6, 2e9, 2e9])
        monkeypatch.setattr(memory, "resident", lambda: next(taken))
        with memory.limited():
            memory.require_memory("a report")
            assert collections == [True]
            with pytest.raises(TooBig, match="a report was not read to its end"):
                memory.require_memory("a report")

    def test_of_a_program_that_uses_much_already_counts_only_what_is_read(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = iter([50e9, 50.5e9, 53e9, 53e9])
        monkeypatch.setattr(memory, "resident", lambda: next(taken))
        with memory.limited():
            memory.require_memory("a report")
            with pytest.raises(TooBig, match="would take more memory than 2GB"):
                memory.require_memory("a report")

    def test_is_shared_by_concurrent_processes(self) -> None:
        with memory.limited_to("4GB"), child_processes(4) as engine:
            assert list(engine.map(limit_there, [0])) == [1e9]


class TestRanges:
    def test_a_million_deep_keep_the_innermost(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(call_sites, "MOST_LABELS", 2000)
        count = 200
        ranges = [pushed(f"level {at}", 2 * at, 4 * count - at) for at in range(count)]
        works = [kernel(2 * at + 1, at) for at in range(count)]
        calls = [call(2 * at, at) for at in range(count)]
        path = database(tmp_path / "t.sqlite", {KERNELS: works, CALLS: calls, RANGES: ranges})
        found = table_of(path).column("nvtx_path").to_pylist()
        assert found[-1] == [f"level {at}" for at in range(count - 6, count)]
        assert max(map(len, found)) == 6


def test_two_thousand_files_in_a_folder_are_found_one_by_one(tmp_path: Path) -> None:
    for at in range(2000):
        (tmp_path / f"{at}.csv").touch()
    assert len(find_sources([str(tmp_path)])) == 2000


class TestLaunchesInParquet:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "launches.parquet"
        parse_into(path, [Source(str(SAMPLES / "d01-wide-raw.csv"))])
        return path

    def test_that_do_not_fit_are_refused_before_they_are_read(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory, "limit", lambda: 1000)
        with pytest.raises(TooBig, match=r"8 launches, of which .* would have to be in memory at once"):
            read_launches(file)

    def test_are_read_if_the_needed_columns_fit(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "limit", lambda: 1000)
        assert read_launches(file, ["launch_id"]).num_rows == 8
        run = Run.in_file("", file)
        assert run.in_parts(["launch_id", "duration_ns"], lambda part: part.slice(0, 1)).num_rows == 1


@pytest.mark.parametrize("element", ["f7", "f1", "f5", "fc"], ids=["doubles", "truths", "numbers", "structs"])
def test_a_footer_whose_list_claims_more_than_it_holds_is_refused_at_once(element: str) -> None:
    claimed = bytes.fromhex(f"19{element}ffffffffffff7f00")  # a list of 2^48 elements, and the end
    with pytest.raises(DamagedFooter, match="a list is longer than the footer"):
        columns_of(claimed)
