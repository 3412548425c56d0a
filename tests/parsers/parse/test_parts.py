"""Several reports at once: whether read in child processes or one by one, the file equals the table of `parse`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from ncu_parsers.datasets import process_engine
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse import parallel_parse, parse
from ncu_parsers.schema.tables import table_metadata
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import NotStreamed

from tests.conftest import SAMPLES
from tests.parsers.streaming.test_streaming import CACHE, TIME, launch_cells, row, wide_header
from tests.support.nightly import by_day
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

pytestmark = pytest.mark.slow

OTHER = "sm__cycles_elapsed.avg"


def report(path: Path, process: int, *metrics: tuple[str, str], value: str = "1.5", rows: int = 40) -> Source:
    """A raw page of one process, with the same value everywhere."""
    lines = [row(*launch_cells(number, process=process), *(value for _ in metrics)) for number in range(rows)]
    path.write_text("\n".join([*wide_header(*metrics), *lines, ""]), encoding="utf-8")
    return Source(str(path))


def different_reports(folder: Path) -> list[Source]:
    """Reports with different column names and types, one of another dialect, no report, and a damaged recording."""
    folder.mkdir(exist_ok=True)
    sources = [
        report(folder / "a.csv", 7, (TIME, "us")),
        report(folder / "b.csv", 8, (TIME, "us"), (OTHER, "cycle")),
        report(folder / "c.csv", 9, (OTHER, ""), (CACHE, ""), value="CachePreferNone"),
    ]
    (folder / "d.csv").write_text("no report\n" * 10, encoding="utf-8")
    (folder / "e.sqlite").write_bytes(b"SQLite format 3\0" + bytes(200))
    more = (folder / "d.csv", SAMPLES / "d18-text.txt", folder / "e.sqlite")
    return [*sources, *(Source(str(path)) for path in more)]


@pytest.fixture
def all_are_big(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make small files count as big: they are streamed, and read in child processes."""
    monkeypatch.setattr(parse, "STREAMED_FROM_BYTES", 100)
    monkeypatch.setattr(parallel_parse, "WORTH_A_PROCESS", 100)
    monkeypatch.setattr(parallel_parse, "WORTH_A_PROCESS_IF_SLOW", 100)


def assert_same(folder: Path, sources: Sequence[Source], result: parse.Parsed) -> None:
    """The file `out.parquet` and its account are those of the table of all reports."""
    slow = {
        report.source: NotStreamed(note.partition(": ")[2])
        for report in result.reports
        for note in report.notes
        if note.startswith("read launch by launch")
    }
    plain = parse.parse(sources, not_streamed=slow)
    assert plain.table is not None
    write_table(plain.table, folder / "plain.parquet")
    one, other = read_launches(folder / "out.parquet"), read_launches(folder / "plain.parquet")
    assert one.to_pylist() == other.to_pylist()
    assert one.schema.equals(other.schema, check_metadata=True)
    assert table_metadata(one) == table_metadata(other)
    assert [report.rows for report in result.reports] == [report.rows for report in plain.reports]
    assert [report.metric_names for report in result.reports] == [report.metric_names for report in plain.reports]
    assert {name: error.paragraph for name, error in result.refused.items()} == {
        name: error.paragraph for name, error in plain.refused.items()
    }
    assert {entry.name for entry in folder.iterdir()} == {"out.parquet", "plain.parquet", "reports"}


@pytest.mark.usefixtures("all_are_big")
class TestSeveralBigReports:
    @pytest.mark.parametrize("processes", [1, 2])
    def test_give_the_same_file_as_their_table(self, tmp_path: Path, processes: int) -> None:
        sources = different_reports(tmp_path / "reports")
        heard: list[Source] = []
        result = parse.parse_into(tmp_path / "out.parquet", sources, processes=processes, reading=heard.append)
        assert result.table is None
        assert set(heard) == set(sources)
        assert_same(tmp_path, sources, result)

    def test_are_joined_if_they_contain_the_same_launches(self, tmp_path: Path) -> None:
        (tmp_path / "reports").mkdir()
        sources = [report(tmp_path / "reports" / f"{name}.csv", 7, (name, "us")) for name in (TIME, OTHER)]
        result = parse.parse_into(tmp_path / "out.parquet", sources)
        assert len(read_launches(tmp_path / "out.parquet")) == 40
        assert_same(tmp_path, sources, result)

    def test_are_kept_apart_on_request(self, tmp_path: Path) -> None:
        sources = [report(tmp_path / f"{name}.csv", 7, (name, "us")) for name in (TIME, OTHER)]
        result = parse.parse_into(tmp_path / "out.parquet", sources, join=False)
        assert result.table is None
        assert len(read_launches(tmp_path / "out.parquet")) == 80

    def test_are_joined_even_if_only_later_launches_are_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "reports").mkdir()
        sources = [
            report(tmp_path / "reports" / "a.csv", 7, (TIME, "us")),
            report(tmp_path / "reports" / "b.csv", 8, (OTHER, "")),
        ]
        with Path(sources[1].path).open("a", encoding="utf-8") as file:
            file.write(row(*launch_cells(39, process=7), "1.5") + "\n")
        result = parse.parse_into(tmp_path / "out.parquet", sources)
        assert len(read_launches(tmp_path / "out.parquet")) == 80
        assert_same(tmp_path, sources, result)

    def test_take_the_attributes_of_a_session_page_beside_them(self, tmp_path: Path) -> None:
        (tmp_path / "reports").mkdir()
        session = Source(str(SAMPLES / "d22-session-page.csv"))
        sources = [report(tmp_path / "reports" / "a.csv", 7, (TIME, "us")), session]
        result = parse.parse_into(tmp_path / "out.parquet", sources, processes=2)
        assert_same(tmp_path, sources, result)

    def test_are_read_in_this_process_if_a_child_dies(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        sources = different_reports(tmp_path / "reports")
        monkeypatch.setattr(parallel_parse, "read_apart", die)
        result = parse.parse_into(tmp_path / "out.parquet", sources, processes=2)
        assert_same(tmp_path, sources, result)

    @pytest.mark.parametrize("missing", [ImportError, NotImplementedError, OSError])
    def test_are_read_in_this_process_without_semaphores(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: type[Exception]
    ) -> None:
        """Fail like concurrent.futures on a machine without semaphores."""
        asked: list[int] = []

        def none_to_be_had(count: int, *_: object) -> None:
            asked.append(count)
            raise missing

        monkeypatch.setattr(process_engine, "ProcessPoolExecutor", none_to_be_had)
        sources = different_reports(tmp_path / "reports")
        result = parse.parse_into(tmp_path / "out.parquet", sources, processes=2)
        assert asked
        assert_same(tmp_path, sources, result)

    def test_leave_no_file_if_none_can_be_read(self, tmp_path: Path) -> None:
        sources = [Source(str(tmp_path / name)) for name in ("a.csv", "b.csv")]
        for source in sources:
            Path(source.path).write_text("no report\n" * 100, encoding="utf-8")
        result = parse.parse_into(tmp_path / "out.parquet", sources)
        assert not result.written
        assert set(result.refused) == {source.name for source in sources}
        assert not (tmp_path / "out.parquet").exists()


class TestManySmallReports:
    """Together the reports are big enough for child processes, each of which reads several."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parse, "MANY_BYTES", 1000)
        monkeypatch.setattr(parallel_parse, "WORTH_A_PROCESS", 30_000)
        monkeypatch.setattr(parallel_parse, "BATCH_BYTES", 12_000)

    @pytest.fixture
    def sources(self, tmp_path: Path) -> list[Source]:
        folder = tmp_path / "reports"
        found = different_reports(folder)
        more = [report(folder / f"{number}.csv", number, (TIME, "us"), (OTHER, "")) for number in range(20, 32)]
        return [*more[:5], *found, *more[5:]]

    def test_are_assigned_to_processes_in_order(self, sources: list[Source]) -> None:
        batches = parallel_parse._batches(sources)
        assert len(batches) > 2
        assert [source for batch in batches for source in batch] == sources
        assert min(len(batch) for batch in batches[:-1]) > 1

    @pytest.mark.parametrize("processes", [1, 2])
    def test_give_the_same_file_as_their_table(self, tmp_path: Path, sources: list[Source], processes: int) -> None:
        result = parse.parse_into(tmp_path / "out.parquet", sources, processes=processes)
        assert result.table is None
        assert len(result.refused) == 2
        assert_same(tmp_path, sources, result)

    def test_are_read_in_this_process_if_a_child_dies(
        self, tmp_path: Path, sources: list[Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parallel_parse, "read_apart", die)
        assert_same(tmp_path, sources, parse.parse_into(tmp_path / "out.parquet", sources, processes=2))


def test_ids_are_recorded_exactly_however_large() -> None:
    large = 2**53
    columns = {
        "process_id": pa.array([7, None, 7, large + 1, None], pa.int64()),
        "launch_id": pa.array([large + 1, 3, large + 3, None, 5], pa.int64()),
    }
    ids: parallel_parse.Ids = {7: (large + 2, large + 2)}
    parallel_parse._note_ids(ids, pa.table(columns))
    assert ids == {7: (large + 1, large + 3), None: (3, 5)}


def die(_: object, *, big: int) -> None:
    os._exit(3)


def eventually(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def big_reports(folder: Path) -> Path:
    """A folder with two reports that are each read in a process."""
    folder.mkdir()
    for process in (7, 8):
        report(folder / f"{process}.csv", process, (TIME, "us"), value="1.5" + "0" * 400, rows=40_000)
    return folder


def parsing(program: str, reports: Path, out: Path) -> subprocess.Popen[bytes]:
    """`ncu-bench parse` of all `reports` into a file in `out`, in a process group of its own."""
    out.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", program, "parse", str(reports), "-o", str(out / "launches.parquet")],
        env={**os.environ, "PYTHONPATH": PYTHONPATH}, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "how", by_day([signal.SIGINT, signal.SIGKILL], [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
)
def test_an_interrupted_parse_leaves_no_process_and_no_partial_file(tmp_path: Path, how: signal.Signals) -> None:
    out = tmp_path / "out"
    running = parsing(PROGRAM[-1], big_reports(tmp_path / "reports"), out)
    assert eventually(lambda: any(out.glob(".*.parts/*")))
    os.killpg(running.pid, how) if how == signal.SIGINT else running.send_signal(how)
    _, said = running.communicate(timeout=30)
    assert eventually(lambda: not is_running(running.pid))
    assert not (out / "launches.parquet").exists()
    if how != signal.SIGKILL:
        assert running.returncode == (130 if how == signal.SIGINT else 143)
        assert said.decode().strip() == "Stopped."
        assert list(out.iterdir()) == []


INTERRUPTED_AT_A_START = """
import os, threading, time
from multiprocessing import util

start = util.spawnv_passfds

def started_and_interrupted(path, arguments, descriptors):
    process = start(path, arguments, descriptors)
    if "spawn_main" in str(arguments):  # not the tracker of semaphores
        os.kill(os.getpid(), {how})
        time.sleep(0.2)  # another thread may get the signal
    return process

util.spawnv_passfds = started_and_interrupted
threading.Thread(target=threading.Event().wait, daemon=True).start()  # gets what the main thread blocks
"""


@pytest.mark.parametrize("how", by_day([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]))
def test_a_parse_interrupted_while_a_process_starts_says_only_that_it_stopped(
    tmp_path: Path, how: signal.Signals
) -> None:
    """The signal comes when the process exists, but was not yet told what to do."""
    program = INTERRUPTED_AT_A_START.format(how=int(how)) + PROGRAM[-1]
    running = parsing(program, big_reports(tmp_path / "reports"), tmp_path / "out")
    _, said = running.communicate(timeout=30)
    assert said.decode().strip() == "Stopped."
    assert running.returncode == (130 if how == signal.SIGINT else 143)
    assert eventually(lambda: not is_running(running.pid))
    assert list((tmp_path / "out").iterdir()) == []


def test_many_small_reports_are_combined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "MANY_BYTES", 1000)
    monkeypatch.setattr(parallel_parse, "ENOUGH_ROWS", 90)
    (tmp_path / "reports").mkdir()
    sources = [report(tmp_path / "reports" / f"{number}.csv", 100 + number, (TIME, "us")) for number in range(7)]
    Path(sources[3].path).write_text("no report\n", encoding="utf-8")
    result = parse.parse_into(tmp_path / "out.parquet", sources)
    assert result.table is None
    assert list(result.refused) == [sources[3].name]
    assert_same(tmp_path, sources, result)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows the setting from 3.11 on")
def test_child_processes_have_no_current_folder_on_sys_path() -> None:
    program = [sys.executable, "-c", "import sys; print('' in sys.path)"]
    before = dict(os.environ)
    with process_engine.hide_current_folder():
        assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "False\n"
    assert dict(os.environ) == before
