"""Datasets: one file per report, on disk and at URLs; every command reads only the columns it needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import astuple, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.datasets.dataset_layout import LogLine, encoded, find_dataset, read_log
from ncu_parsers.datasets.remote_files import RemoteFile, file_at
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse, parse_into
from ncu_parsers.parse.parse_dataset import parse_into_dataset, reports_to_read, run_of
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.tables import with_metadata
from ncu_parsers.sources.sources import Source, is_url

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli import run
from ncu_tools.kernels.hotspots import RunSums, hotspots
from ncu_tools.kernels.kernel_cache import hotspots_of
from ncu_tools.kernels.kernel_row import GROUPS, Hotspot
from ncu_tools.roofline import density
from ncu_tools.roofline.load_for_roofline import load_for
from ncu_tools.roofline.roofline import Look, roofline
from ncu_tools.runs.loading import load, on_disk
from ncu_tools.runs.partition_sums import _in_rows
from ncu_tools.runs.run import PartInFile, Run
from tests.conftest import SAMPLES
from tests.support.launches import launch, sass, table, tensor
from tests.support.nightly import one_in
from tests.support.reports import sample_files
from tests.tools.bench.test_scaling import sweep

pytestmark = pytest.mark.slow

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (pip install '.[remote]')")

WIDE = SAMPLES / "d01-wide-raw.csv"


@dataclass
class Ended:
    """A finished command."""

    exit_code: int
    stdout: str
    stderr: str


def bench(*arguments: str) -> Ended:
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        code = run(list(arguments))
    return Ended(code, stdout.getvalue(), stderr.getvalue())


def shown(*arguments: str) -> Any:
    """The JSON output of a command."""
    result = bench(*arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def ranks(tmp_path: Path) -> list[Source]:
    """The same report from three ranks of one run folder."""
    sources = []
    for rank in range(3):
        reports = tmp_path / "train" / "ranks" / str(rank) / "reports"
        reports.mkdir(parents=True)
        place = {"place": {"rank": rank, "host": f"node{rank}"}}
        (reports.parent / "manifest.json").write_text(json.dumps(place), encoding="utf-8")
        shutil.copy(WIDE, reports / "ncu.csv")
        sources.append(Source(str(reports / "ncu.csv")))
    return sources


@pytest.fixture
def store() -> Iterator[str]:
    """A URL of an in-memory file system."""
    yield "memory://bucket/fleet"
    fsspec.filesystem("memory").store.clear()


def paths_below(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


# --------------------------------------------------------------------------------------------------------- the layout


class TestTheLayout:
    def test_is_run_rank_report(self, tmp_path: Path, ranks: list[Source]) -> None:
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        assert paths_below(tmp_path / "fleet") == [
            "run=train/_log.jsonl",
            *(f"run=train/rank={rank}/report=ncu.csv/launches.parquet" for rank in range(3)),
        ]

    def test_is_read_by_pyarrow_alone(self, tmp_path: Path, ranks: list[Source]) -> None:
        from pyarrow import dataset

        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        of_run = dataset.partitioning(pa.schema([("run", pa.string())]), flavor="hive")
        rows = dataset.dataset(tmp_path / "fleet", partitioning=of_run).to_table(columns=["run", "rank"])
        assert {(row["run"], row["rank"]) for row in rows.to_pylist()} == {("train", rank) for rank in range(3)}

    def test_is_read_by_duckdb_alone(self, tmp_path: Path, ranks: list[Source]) -> None:
        duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (pip install '.[query]')")
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        files = f"read_parquet('{tmp_path}/fleet/*/*/*/launches.parquet', hive_partitioning=true, union_by_name=true)"
        rows = duckdb.sql(f"SELECT DISTINCT run, CAST(rank AS INT) FROM {files}").fetchall()  # noqa: S608
        assert set(rows) == {("train", rank) for rank in range(3)}

    def test_marks_an_unknown_rank(self, tmp_path: Path) -> None:
        parse_into_dataset(str(tmp_path), [Source(str(WIDE))], run="a b/ü")
        dataset = find_dataset(str(tmp_path))
        assert dataset is not None
        (one,) = dataset.partitions
        assert (one.run, one.rank, one.report) == ("a b/ü", None, WIDE.name)
        assert "run=a%20b%2F%C3%BC/rank=__HIVE_DEFAULT_PARTITION__" in str(one.file)

    def test_distinguishes_reports_of_the_same_name_by_their_folders(self, tmp_path: Path) -> None:
        sources = [Source(f"/x/{name}/r.csv") for name in ("a/one", "b/one", "b/two")] + [Source("/x/s.csv")]
        names = [work.name for work in reports_to_read(str(tmp_path), sources, "run", None)]
        assert names == ["a/one/r.csv", "b/one/r.csv", "two/r.csv", "s.csv"]

    def test_takes_the_run_from_the_folder_of_a_report(self) -> None:
        assert run_of("/data/train/ranks/3/reports/ncu.ncu-rep") == "train"
        assert run_of("/data/train/reports/ncu.ncu-rep") == "train"
        assert run_of("/data/node7/report.csv") == "node7"

    def test_shortens_very_long_names_and_keeps_them_unique(self) -> None:
        names = [encoded("ü" * 300 + end) for end in "ab"]
        assert names[0] != names[1]
        assert all(len(name) <= 180 for name in names)

    def test_a_folder_inside_is_a_dataset_too(self, tmp_path: Path, ranks: list[Source]) -> None:
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        inside = find_dataset(str(tmp_path / "fleet" / "run=train" / "rank=1"))
        assert inside is not None
        assert [(one.run, one.rank) for one in inside.partitions] == [("train", 1)]

    def test_ranks_come_in_the_order_of_their_numbers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for rank in ("10", "9", "__HIVE_DEFAULT_PARTITION__"):
            folder = tmp_path / "run=r" / f"rank={rank}" / "report=x"
            folder.mkdir(parents=True)
            write_table(load(str(WIDE)).table, folder / "launches.parquet")
        dataset = find_dataset(str(tmp_path))
        assert dataset is not None
        assert [one.rank for one in dataset.partitions] == [9, 10, None]


# ---------------------------------------------------------------------------------------------------------- the rows


class TestReportsParsedIntoADataset:
    def test_have_the_same_rows_as_one_file(self, tmp_path: Path, ranks: list[Source]) -> None:
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        parse_into(tmp_path / "one.parquet", ranks, join=False)
        rows = load(str(tmp_path / "fleet")).table
        one = load(str(tmp_path / "one.parquet")).table
        assert rows.drop_columns(["run"]).to_pylist() == one.to_pylist()
        assert set(rows.column("run").to_pylist()) == {"train"}

    def test_that_are_parsed_again_are_replaced(self, tmp_path: Path, ranks: list[Source]) -> None:
        for _ in range(2):
            parse_into_dataset(str(tmp_path / "fleet"), ranks)
        assert len(load(str(tmp_path / "fleet")).table) == 3 * len(load(str(WIDE)).table)

    def test_that_get_a_rank_later_are_moved(self, tmp_path: Path, ranks: list[Source]) -> None:
        manifest = Path(ranks[0].path).parents[1] / "manifest.json"
        said = manifest.read_text("utf-8")
        manifest.write_text(json.dumps({"place": {"host": "node0", "processes": []}}), encoding="utf-8")
        parse_into_dataset(str(tmp_path / "fleet"), ranks[:1])
        manifest.write_text(said, encoding="utf-8")
        parse_into_dataset(str(tmp_path / "fleet"), ranks[:1])
        assert [path for path in paths_below(tmp_path / "fleet") if "launches" in path] == [
            "run=train/rank=0/report=ncu.csv/launches.parquet"
        ]

    def test_that_cannot_be_read_are_recorded_in_the_log(self, tmp_path: Path, ranks: list[Source]) -> None:
        bad = Path(ranks[1].path)
        bad.write_text("no report\n", encoding="utf-8")
        result = parse_into_dataset(str(tmp_path / "fleet"), ranks)
        assert list(result.refused) == [str(bad)]
        log = read_log(tmp_path / "fleet" / "run=train" / "_log.jsonl")
        assert [line.outcome for line in log.values()] == ["read", "refused", "read"]
        assert log[str(bad)].reason == result.refused[str(bad)].paragraph
        assert any("holds no table" in note for note in load(str(tmp_path / "fleet")).notes)

    def test_that_can_no_longer_be_read_keep_their_launches(self, tmp_path: Path, ranks: list[Source]) -> None:
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        before = load(str(tmp_path / "fleet")).table
        Path(ranks[1].path).write_text("no report\n", encoding="utf-8")
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        assert load(str(tmp_path / "fleet")).table.equals(before)
        line = read_log(tmp_path / "fleet" / "run=train" / "_log.jsonl")[ranks[1].path]
        assert line.outcome == "read"
        assert "kept as it was" in (line.reason or "")

    def test_that_may_contain_the_same_launches_get_a_note(self, tmp_path: Path) -> None:
        for name in ("a.csv", "b.csv"):
            shutil.copy(WIDE, tmp_path / name)
        result = parse_into_dataset(
            str(tmp_path / "fleet"), [Source(str(tmp_path / name)) for name in ("a.csv", "b.csv")]
        )
        assert any("count twice" in note for note in result.notes)

    def test_of_different_ranks_get_no_note_on_equal_launches(self, tmp_path: Path, ranks: list[Source]) -> None:
        assert parse_into_dataset(str(tmp_path / "fleet"), ranks).notes == []

    def test_that_make_a_reader_raise_are_refused_alone(
        self, tmp_path: Path, ranks: list[Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from ncu_parsers.parse import parse_dataset

        def stumble(path: Path, sources: list[Source]) -> Any:
            if "ranks/1/" in sources[0].path:
                raise ZeroDivisionError("division by zero")
            return parse_into(path, sources)

        monkeypatch.setattr(parse_dataset, "parse_into", stumble)
        result = parse_into_dataset(str(tmp_path / "fleet"), ranks)
        assert len(result.reports) == 2
        assert "ZeroDivisionError" in result.refused[ranks[1].path].paragraph

    def test_leave_no_temporary_files(self, tmp_path: Path, ranks: list[Source]) -> None:
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        assert {entry.name for entry in (tmp_path / "fleet").iterdir()} == {"run=train"}


def test_a_broken_log_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "_log.jsonl").write_text('{"report": "x"\n', encoding="utf-8")
    assert read_log(tmp_path / "_log.jsonl") == {}
    assert LogLine("x", "read").reason is None


# ------------------------------------------------------------------------------------------------------------- sums


def nearly(one: Hotspot, other: Hotspot) -> bool:
    """True if two rows are equal up to the last digits of floating-point sums."""
    mine, theirs = ([*astuple(replace(row, work={}))[:-1], *row.work.items()] for row in (one, other))
    mine, theirs = (
        [cell for part in row for cell in (part if isinstance(part, tuple) else [part])] for row in (mine, theirs)
    )
    return len(mine) == len(theirs) and all(
        here == (pytest.approx(there, rel=1e-12) if isinstance(there, float) else there)
        for here, there in zip(mine, theirs, strict=True)
    )


class TestHotspotsOfADataset:
    @pytest.mark.parametrize("path", one_in(8, sample_files()), ids=lambda path: path.name)
    def test_of_one_report_are_those_of_its_file(self, path: Path, tmp_path: Path) -> None:
        if parse([Source(str(path))]).table is None:
            return
        parse_into_dataset(str(tmp_path / "parts"), [Source(str(path))])
        parse_into(tmp_path / "whole.parquet", [Source(str(path))])
        whole = on_disk(str(tmp_path / "whole.parquet"))
        parts = on_disk(str(tmp_path / "parts"))
        assert whole is not None
        assert parts is not None
        for group in GROUPS:
            assert hotspots_of(parts, group=group) == hotspots_of(whole, group=group)

    def test_of_many_are_those_of_one_file_with_all(self, tmp_path: Path, ranks: list[Source]) -> None:
        others = [Source(str(SAMPLES / name)) for name in ("d02-long-rules.csv", "d14-kernel-failed.csv")]
        parse_into_dataset(str(tmp_path / "fleet"), [*ranks, *others])
        run = on_disk(str(tmp_path / "fleet"))
        assert run is not None
        whole = run.table
        for group in GROUPS:
            result = hotspots_of(run, find_machine("h100-sxm"), group=group)
            expected = hotspots(whole, ceilings_of(whole, find_machine("h100-sxm")), group=group)
            assert len(result.rows) == len(expected.rows), group
            assert all(nearly(one, other) for one, other in zip(result.rows, expected.rows, strict=True)), group

    def test_do_not_depend_on_the_number_of_files_summed_at_once(
        self, tmp_path: Path, ranks: list[Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from ncu_tools.runs import partition_sums

        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        run = on_disk(str(tmp_path / "fleet"))
        assert run is not None
        alone = hotspots_of(run)
        monkeypatch.setattr(partition_sums, "TASKS", 1)
        assert all(nearly(*pair) for pair in zip(hotspots_of(run).rows, alone.rows, strict=True))

    def test_skip_a_damaged_file_with_a_note(self, tmp_path: Path, ranks: list[Source]) -> None:
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        run = on_disk(str(tmp_path / "fleet"))
        assert run is not None
        before = hotspots_of(run).rows[0].launches
        damaged = tmp_path / "fleet" / "run=train" / "rank=1" / "report=ncu.csv" / "launches.parquet"
        damaged.write_bytes(damaged.read_bytes()[:-30])
        result = hotspots_of(run)
        assert result.rows[0].launches * 3 == before * 2
        assert any(f"{damaged} was left out" in note for note in result.notes)
        assert any(f"{damaged} was left out" in note for note in load(str(tmp_path / "fleet")).notes)

    def test_are_an_error_where_no_file_can_be_read(self, tmp_path: Path, ranks: list[Source]) -> None:
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        for file in (tmp_path / "fleet").rglob("launches.parquet"):
            file.write_text("nothing", encoding="utf-8")
        run = on_disk(str(tmp_path / "fleet"))
        assert run is not None
        for read in (hotspots_of, Run.read):
            with pytest.raises(NcuBenchError, match="could not be read as Parquet"):
                read(run)


def test_sums_merged_in_order_equal_those_of_the_whole() -> None:
    rows = table(
        *(
            launch(f"k{n % 3}", sass(ffma=n * 1e9) | tensor(tf32_dst_fp32=n), ns=10.0 + n % 7, dram=n * 64.0)
            for n in range(40)
        ),
        launch("untimed", sass(ffma=5.0)),
        launch("failed", failed=True),
    )
    whole = RunSums("name")
    whole.add(rows, ceilings_of(rows))
    merged = RunSums("name")
    for start in range(0, len(rows), 7):
        part = RunSums("name")
        cut = rows.slice(start, 7)
        part.add(cut, ceilings_of(cut))
        merged.merge(part)
    assert [row.kernel for row in merged.kernels()] == [row.kernel for row in whole.kernels()]
    assert all(nearly(one, other) for one, other in zip(merged.kernels(), whole.kernels(), strict=True))
    assert merged.notes() == whole.notes()
    assert any(row.flag for row in whole.kernels())


def test_the_order_of_summation_depends_only_on_the_number_of_files() -> None:
    def lengths(files: int) -> set[int]:
        rows = _in_rows([PartInFile(Path(str(n))) for n in range(files)])
        assert sum(map(len, rows)) == files
        return {len(row) for row in rows[:-1]}

    assert lengths(100) == {1}
    assert lengths(1000) == {15}
    assert lengths(10_000) == {32}
    assert _in_rows([]) == []


# ---------------------------------------------------------------------------------------------- what of it is read


def test_a_roofline_of_many_files_takes_its_ceilings_from_some_launches_of_each(
    tmp_path: Path, ranks: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "fleet")
    parse_into_dataset(root, ranks)
    whole = load_for(root, Look(), None)
    monkeypatch.setattr(density, "ENOUGH_FOR_CEILINGS", 6)
    some = load_for(root, Look(), None)
    step = len(whole.table) // 6
    assert step > 1
    assert len(some.table) == len(ranks) * len(range(0, len(whole.table) // len(ranks), step))
    assert any(f"medians of {len(some.table)} of its {len(whole.table)} launches" in note for note in some.notes)
    assert some.points is not None
    assert some.points == whole.points
    drawn = [roofline({"fleet": run.table}, summed={"fleet": some.points}).ceilings for run in (some, whole)]
    assert [(one.device, one.unit) for one in drawn[0]] == [(one.device, one.unit) for one in drawn[1]]
    assert [one.value for one in drawn[0]] == pytest.approx([one.value for one in drawn[1]], rel=0.05)


class _Counting:
    """A file that counts the bytes read from it."""

    def __init__(self, stream: Any, read: list[int]) -> None:
        self._stream, self._read = stream, read

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        self._read.append(len(data))
        return data

    def __enter__(self) -> _Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads through URLs."""
    read: list[int] = []
    plain = RemoteFile.open
    monkeypatch.setattr(RemoteFile, "open", lambda self: _Counting(plain(self), read))
    return read


class TestBehindAUrl:
    def test_is_read_as_on_disk(self, tmp_path: Path, store: str, ranks: list[Source]) -> None:
        for root in (store, str(tmp_path / "fleet")):
            parse_into_dataset(root, ranks)
        remote, local = (on_disk(root) for root in (store, str(tmp_path / "fleet")))
        assert remote is not None
        assert local is not None
        assert remote.table.equals(local.table)
        assert hotspots_of(remote) == hotspots_of(local)
        assert remote.contents() == local.contents()

    def test_columns_that_are_not_needed_are_not_fetched(self, store: str, fetched: list[int], tmp_path: Path) -> None:
        values = np.random.default_rng(1).random(20_000)
        columns = {name: values + number for number, name in enumerate(("duration_ns", *(f"m{n}" for n in range(20))))}
        write_table(with_metadata(pa.table(columns), {"schema_version": 1}), tmp_path / "launches.parquet")
        file = RemoteFile(store).joinpath("run=r", "rank=0", "report=x", "launches.parquet")
        file.upload(tmp_path / "launches.parquet")
        run = on_disk(store)
        assert run is not None
        run.read()
        whole = sum(fetched)
        fetched.clear()
        assert run.read(["duration_ns"]).column_names == ["duration_ns"]
        assert sum(fetched) < 70_000 + whole / 20  # a footer is fetched with what lies in 64 kB before it
        assert whole > 2_000_000

    def test_launches_are_not_fetched_for_what_the_footer_says(
        self, store: str, ranks: list[Source], fetched: list[int]
    ) -> None:
        parse_into_dataset(store, ranks)
        run = on_disk(store)
        assert run is not None
        assert run.contents().rows == 3 * len(load(str(WIDE)).table)
        assert len(fetched) <= 2 * 3  # the footer of each file, in one or two pieces

    def test_hotspots_open_each_file_once(
        self, store: str, ranks: list[Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parse_into_dataset(store, ranks)
        opened: list[str] = []
        plain = RemoteFile.open

        def noted(self: RemoteFile) -> Any:
            opened.append(self.url)
            return plain(self)

        monkeypatch.setattr(RemoteFile, "open", noted)
        run = on_disk(store)
        assert run is not None
        hotspots_of(run)
        assert len(opened) == len(set(opened)) == 3

    def test_a_single_file_is_a_run(self, store: str, tmp_path: Path) -> None:
        parse_into(tmp_path / "launches.parquet", [Source(str(WIDE))])
        RemoteFile(store).joinpath("launches.parquet").upload(tmp_path / "launches.parquet")
        for url in (store, f"{store}/launches.parquet"):
            run = on_disk(url)
            assert run is not None
            assert hotspots_of(run).rows == hotspots_of(Run.in_file("", tmp_path / "launches.parquet")).rows

    def test_a_report_has_its_log(self, store: str, ranks: list[Source]) -> None:
        Path(ranks[1].path).write_text("no report\n", encoding="utf-8")
        parse_into_dataset(store, ranks)
        dataset = find_dataset(store)
        assert dataset is not None
        assert [line.report for line in dataset.refused] == [ranks[1].path]


class TestErrors:
    """Each error is one paragraph with advice."""

    def failing(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> NcuBenchError:
        def fail(*_: object) -> Any:
            raise error

        monkeypatch.setattr("fsspec.core.url_to_fs", fail)
        with pytest.raises(NcuBenchError) as caught:
            find_dataset("s3://bucket/fleet")
        assert "\n" not in caught.value.paragraph
        return caught.value

    def test_name_the_package_that_a_scheme_needs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "pip install s3fs" in self.failing(monkeypatch, ImportError("Install s3fs to access S3")).paragraph

    def test_name_the_packages_that_http_needs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(_: str) -> NoReturn:
            raise ImportError("no aiohttp")

        monkeypatch.setattr("fsspec.core.url_to_fs", missing)
        with pytest.raises(NcuBenchError, match="pip install requests aiohttp"):
            find_dataset("https://example.com/fleet")

    @pytest.mark.parametrize("command", [["hotspots"], ["timeline"], ["parse", "-o", "launches.parquet"]])
    def test_say_that_a_report_behind_a_url_is_fetched_first(self, command: list[str]) -> None:
        result = bench(*command, "https://example.com/report.csv")
        assert result.exit_code == 1
        assert "https://example.com/report.csv is a URL, and behind one only Parquet" in result.stderr
        assert "Fetch it, and name the file." in result.stderr

    def test_name_an_unknown_scheme(self) -> None:
        with pytest.raises(NcuBenchError, match="not a URL of a supported file system"):
            find_dataset("nonsense://bucket/fleet")

    def test_report_missing_permissions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "credentials" in self.failing(monkeypatch, PermissionError("Access\nDenied")).paragraph

    def test_quote_the_error_of_the_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class NoCredentialsError(Exception):
            pass

        assert "NoCredentialsError: none" in self.failing(monkeypatch, NoCredentialsError("none")).paragraph

    def test_name_the_extra_where_fsspec_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        with pytest.raises(NcuBenchError, match=r"pip install '\.\[remote\]'"):
            find_dataset("s3://bucket/fleet")

    def test_report_a_missing_dataset(self, store: str) -> None:
        result = bench("hotspots", store)
        assert result.exit_code == 1
        assert "no dataset and no Parquet file at memory://bucket/fleet" in result.stderr

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["-o", "out.parquet", "--run", "x"], "--run is for a dataset"),
            (["-o", "out.parquet", "--dask", "local"], "--dask is for a dataset"),
            (["-o", "s3://bucket/x.parquet"], "a dataset is a folder of files"),
            (["-o", "."], "is a folder"),
            (["-o", "memory://x", "--dask", "local"], "memory of one process"),
        ],
    )
    def test_of_parse_are_wrong_usage(self, arguments: list[str], words: str) -> None:
        result = bench("parse", str(WIDE), *arguments)
        assert result.exit_code == 2
        assert words in result.stderr

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("", encoding="utf-8")
        result = bench("parse", str(WIDE), "-o", f"{tmp_path}/file/fleet/")
        assert result.exit_code == 1
        assert "could not be made" in result.stderr

    def test_a_run_folder_is_refused_as_a_dataset(self, tmp_path: Path) -> None:
        (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
        assert "is a run folder" in bench("parse", str(WIDE), "-o", f"{tmp_path}/").stderr


def test_file_urls_are_paths_on_disk() -> None:
    assert file_at("file:///data/a%20b") == Path("/data/a b")
    assert not is_url("C:\\data")


# ------------------------------------------------------------------------------------------------------- the commands


class TestEveryCommand:
    def read_back(self, tmp_path: Path, ranks: list[Source], *command: str) -> tuple[Any, Any]:
        """The output of a command for a dataset, and for one file with the same rows."""
        fleet, one = str(tmp_path / "fleet"), str(tmp_path / "one.parquet")
        parse_into_dataset(fleet, ranks)
        parse_into(Path(one), ranks, join=False)
        name, *others = command
        return shown(name, fleet, *others), shown(name, one, *others)

    @pytest.mark.parametrize("command", [["roofline"], ["roofline", "--levels", "all"], ["timeline", "--by", "kernel"]])
    def test_reads_a_dataset_as_a_file(self, tmp_path: Path, ranks: list[Source], command: list[str]) -> None:
        dataset, file = self.read_back(tmp_path, ranks, *command)
        assert len(dataset["rows"]) == len(file["rows"])
        assert [list(row) for row in dataset["rows"]] == [list(row) for row in file["rows"]]
        for one, other in zip(dataset["rows"], file["rows"], strict=True):
            for name, value in one.items():
                if name != "run":
                    assert value == (pytest.approx(other[name], rel=1e-12) if isinstance(value, float) else other[name])

    def test_layers_reads_a_dataset_as_a_file(self, tmp_path: Path) -> None:
        dataset, file = self.read_back(tmp_path, [Source(str(SAMPLES / "h100" / "gemms.csv"))], "layers")
        assert dataset["rows"] == file["rows"] != []

    def test_query_knows_the_run(self, tmp_path: Path, ranks: list[Source]) -> None:
        pytest.importorskip("duckdb", reason="duckdb is not installed (pip install '.[query]')")
        parse_into_dataset(str(tmp_path / "fleet"), ranks)
        sql = "SELECT run, rank, count(*) AS n FROM launches GROUP BY ALL ORDER BY rank"
        rows = shown("query", str(tmp_path / "fleet"), sql)["rows"]
        assert [(row["run"], row["rank"]) for row in rows] == [("train", rank) for rank in range(3)]

    def test_compares_two_datasets(self, tmp_path: Path, ranks: list[Source]) -> None:
        for name in ("a", "b"):
            parse_into_dataset(str(tmp_path / name), ranks)
        rows = shown("compare", str(tmp_path / "a"), str(tmp_path / "b"))["rows"]
        assert rows
        assert all(row["launches_ratio"] == 1.0 for row in rows)

    def test_exports_and_reports_a_dataset(self, tmp_path: Path, ranks: list[Source]) -> None:
        fleet = str(tmp_path / "fleet")
        parse_into_dataset(fleet, ranks)
        for form in ("csv", "sections"):
            result = bench("report", fleet, "-o", str(tmp_path / "out.csv"), "--as", form)
            assert result.exit_code == 0, result.stderr
        result = bench("report", fleet, "-o", str(tmp_path / "out.html"))
        assert result.exit_code == 0, result.stderr

    def test_parse_writes_a_dataset_to_a_folder_or_url(self, tmp_path: Path, store: str, ranks: list[Source]) -> None:
        paths = [source.path for source in ranks]
        for output in (f"{tmp_path}/fleet/", store):
            assert len(shown("parse", *paths, "-o", output)["rows"]) == 3
        kernels = [shown("hotspots", root)["rows"] for root in (f"{tmp_path}/fleet", store)]
        assert kernels[0] == kernels[1]
        assert bench("parse", *paths, "-o", str(tmp_path / "x"), "--dataset", "--run", "mine").exit_code == 0
        assert (tmp_path / "x" / "run=mine").is_dir()

    def test_scaling_reads_every_sweep_below_a_folder_or_url(self, tmp_path: Path, store: str) -> None:
        sweeps(tmp_path)
        named = shown("bench", str(tmp_path / "one"), str(tmp_path / "two"))
        assert len(named["rows"]) == 2
        assert shown("bench", str(tmp_path))["rows"] == named["rows"]
        for name in ("one", "two"):
            RemoteFile(store).joinpath(name, "bench.parquet").write_bytes(
                (tmp_path / name / "bench.parquet").read_bytes()
            )
        assert shown("bench", store)["rows"] == named["rows"]

    def test_scaling_reports_a_folder_without_sweep(self, tmp_path: Path) -> None:
        assert "bench.parquet does not exist" in bench("bench", str(tmp_path)).stderr


def sweeps(folder: Path) -> None:
    """Two sweeps of two models, in separate folders."""
    for name, exponent in (("one", 0.5), ("two", 1.0)):
        (folder / name).mkdir()
        write_table(bench_table(sweep(exponent, name)), folder / name / "bench.parquet")


def test_the_error_for_a_dataset_of_refused_reports_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("no report\n", encoding="utf-8")
    parse_into_dataset(str(tmp_path / "fleet"), [Source(str(tmp_path / "bad.csv"))])
    run = load(str(tmp_path / "fleet"))
    for read in (run.read, run.contents, lambda: hotspots_of(run)):
        with pytest.raises(NcuBenchError, match="holds no launches"):
            read()


@pytest.mark.parametrize("file", ["../../victim.parquet", "/victim.parquet", "rank=0/report=x/../../../victim.parquet"])
def test_files_named_in_a_log_are_deleted_only_if_they_are_those_of_a_report(file: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim.parquet"
    victim.write_text("mine")
    root = tmp_path / "fleet"
    assert bench("parse", str(WIDE), "-o", f"{root}/", "--run", "r").exit_code == 0
    log = root / "run=r" / "_log.jsonl"
    line = json.loads(log.read_text("utf-8"))
    named = file if file.startswith("..") or not file.startswith("/") else str(victim)
    log.write_text(json.dumps({**line, "file": named}) + "\n", encoding="utf-8")
    assert bench("parse", str(WIDE), "-o", f"{root}/", "--run", "r").exit_code == 0
    assert victim.read_text() == "mine"
    assert json.loads(log.read_text("utf-8"))["file"] == line["file"]


def test_a_log_that_is_a_link_is_replaced_and_its_target_unchanged(tmp_path: Path) -> None:
    (tmp_path / "fleet" / "run=r").mkdir(parents=True)
    log = tmp_path / "fleet" / "run=r" / "_log.jsonl"
    log.symlink_to(tmp_path / "elsewhere")
    assert bench("parse", str(WIDE), "-o", f"{tmp_path / 'fleet'}/", "--run", "r").exit_code == 0
    assert not log.is_symlink()
    assert len(read_log(log)) == 1
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("line", ['{"report": [1], "outcome": "read"}', "[1]", '{"x": 1}', "[" * 100_000, "{"])
def test_an_invalid_line_of_a_log_is_skipped_alone(line: str, tmp_path: Path) -> None:
    log = tmp_path / "_log.jsonl"
    log.write_text(f'{line}\n{{"report": "a.csv", "outcome": "refused", "reason": "r"}}\n', encoding="utf-8")
    assert read_log(log) == {"a.csv": LogLine("a.csv", "refused", reason="r")}
