"""The lines of a big long page, recognised by another process: the same launches, and no process that stays."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from ncu_parsers import fast_long, line_process, long_lines, stream
from ncu_parsers.parse import parse_into
from ncu_parsers.sources import Source

from ncu_tools.cli import cli
from tests.as_if_apart import as_if_apart
from tests.test_streaming import IDENTITY, RULES, TAIL, Kept, everything, file_of, launch_cells, plainly, row

TIME = ("Speed Of Light", "gpu__time_duration.sum", "us")


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every report is worth a process, whatever its size and this machine; these are the processes there were."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(line_process.LineProcess):
        def __init__(self, source: Source) -> None:
            super().__init__(source)
            started.append(self._process)

    monkeypatch.setattr(line_process, "LineProcess", Noted)
    monkeypatch.setattr(line_process, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(line_process, "cores", lambda: 2)
    return started


@pytest.fixture
def nothing_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process reads itself is an error."""
    monkeypatch.setattr(stream, "_read", None)


def report_in(folder: Path, launches: int = 300) -> Path:
    """A long page with rules, program output, n/a, a row with a quote inside and one of another line end."""
    lines = ["==PROF== Connected to process 7", row(*IDENTITY, *TAIL, *RULES)]
    for number in range(launches):
        cells = launch_cells(number)
        lines += [row(*cells, *TIME, f"{number + 1:,}.50") + ","] * (number % 7 > 0)
        lines += [row(*cells, "", "", "", "", "Bottleneck", "OPT", f'Use "{number % 3}"', "global", "1.5")]
        lines += [
            row(*cells, "Launch Statistics", "Registers", "register/thread", "32") + ("," if number % 5 else ",\r")
        ]
        lines += ["epoch 3, loss 0.5"] * (number % 11 == 0) + ['"odd, ""', ""] * (number % 50 == 0)
        lines += [row(*cells, "Occupancy", "Achieved", "%", "n/a") + ","] * (number % 13 == 0)
    return file_of(folder, lines)


def streamed(path: Path) -> Any:
    kept = Kept()
    report = stream.stream_report(Source(str(path)), kept)
    assert report is not None
    return everything(report, pa.concat_tables(kept.tables).unify_dictionaries())


@pytest.mark.usefixtures("nothing_is_read_here")
def test_another_process_finds_what_the_plain_reader_finds(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    path = report_in(tmp_path)
    assert streamed(path) == plainly(path)
    assert [process.poll() is not None for process in processes] == [True]


@pytest.mark.usefixtures("nothing_is_read_here", "processes")
def test_a_packed_report_is_unpacked_there(tmp_path: Path) -> None:
    plain = report_in(tmp_path)
    packed = tmp_path / "report.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    found, _, rows = streamed(packed)
    expected, _, expected_rows = plainly(plain) or ({}, [], [])
    assert [{**one, "report": ""} for one in rows] == [{**one, "report": ""} for one in expected_rows]
    assert {**found, "report": ""} == {**expected, "report": ""}


@pytest.mark.usefixtures("nothing_is_read_here", "processes")
def test_nothing_in_the_current_folder_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = report_in(tmp_path)
    for name in ("json", "csv", "ncu_parsers", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken over')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    assert streamed(path)[0]["launches"] == 300


LOST = (
    "raise SystemExit",
    f"{line_process.PROGRAM.partition('from ')[0]}import os; from ncu_parsers import line_process, long_lines; "
    "long_lines.BYTES_OF_A_STRETCH = 2000; send = line_process._Sender.send; "
    "line_process._Sender.send = lambda *stretch: (send(*stretch), os._exit(1)); "
    "line_process.recognise(sys.argv[2], sys.stdout.buffer)",
    "import sys; sys.stdout.buffer.write((2).to_bytes(8, sys.byteorder) * 5 + b'{}')",
)


@pytest.mark.parametrize("program", LOST, ids=["at once", "behind a stretch", "within a message"])
def test_where_the_process_is_lost_the_report_is_read_here(
    program: str, tmp_path: Path, processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_process, "PROGRAM", program)
    path = report_in(tmp_path)
    assert streamed(path) == plainly(path)
    assert [process.poll() is not None for process in processes] == [True]


def test_where_no_process_can_be_started_the_report_is_read_here(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    path = report_in(tmp_path)
    assert streamed(path) == plainly(path)
    assert processes == []


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["a full disk", "Ctrl-C"])
def test_no_process_stays_when_reading_ends_early(
    error: BaseException, tmp_path: Path, processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(fast_long.LongPages, "take", fail)
    with pytest.raises(type(error)):
        streamed(report_in(tmp_path))
    assert [process.poll() is not None for process in processes] == [True]


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    path = report_in(tmp_path, 20_000)  # more than fits into a pipe
    code = (
        "import sys, time; from ncu_parsers.line_process import LineProcess; from ncu_parsers.sources import Source\n"
        "process = LineProcess(Source(sys.argv[1])); print(process._process.pid, flush=True); time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    other = int(process.stdout.readline())
    os.kill(other, 0)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and is_running(other):
        time.sleep(0.05)
    assert not is_running(other)


def is_running(process: int) -> bool:
    """Whether there is such a process that has not ended; one that nobody waits for stays a while after its end."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_row_that_is_none_after_all_is_looked_at_here(tmp_path: Path, processes: list[Any]) -> None:
    rows = [row(*launch_cells(number), *TIME, "1.50") for number in range(40)]
    rows[20] = rows[20].replace('"us"', '"u"s"')
    path = file_of(tmp_path, [row(*IDENTITY, *TAIL), *rows])
    assert streamed(path) == plainly(path)
    assert len(processes) == 1


@pytest.mark.usefixtures("processes")
def test_a_report_that_is_for_the_plain_reader_stays_for_it(tmp_path: Path) -> None:
    rows = [row(*launch_cells(number), *TIME, "1.50" if number < 5 else "1,50") for number in range(10)]
    path = file_of(tmp_path, [row(*IDENTITY, *TAIL), *rows])
    assert stream.stream_report(Source(str(path)), Kept()) is None


def test_a_wide_page_is_read_here(tmp_path: Path, processes: list[Any]) -> None:
    cells = [row(*launch_cells(number), "1.50") for number in range(60)]
    wide = [row(*IDENTITY, "gpu__time_duration.sum"), row(*[""] * len(IDENTITY), "us"), *cells]
    path = file_of(tmp_path, wide)
    assert streamed(path) == plainly(path)
    assert processes == []
    path = file_of(tmp_path, ['the program prints "Metric Name"', *wide])
    assert streamed(path) == plainly(path)
    assert len(processes) == 1


def test_one_core_and_a_small_report_are_worth_none(
    tmp_path: Path, processes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(str(report_in(tmp_path)))
    assert line_process.is_worth_a_process(source)
    monkeypatch.setattr(line_process, "WORTH_A_PROCESS", 10_000_000)
    assert not line_process.is_worth_a_process(source)
    monkeypatch.setattr(line_process, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(line_process, "cores", lambda: 1)
    assert not line_process.is_worth_a_process(source)
    assert not line_process.is_worth_a_process(Source(str(tmp_path / "nowhere.csv")))


def test_a_packed_program_is_not_started_anew(
    tmp_path: Path, processes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(str(report_in(tmp_path)))
    assert line_process.is_worth_a_process(source)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not line_process.is_worth_a_process(source)
    monkeypatch.delattr(sys, "frozen")
    monkeypatch.setattr(sys, "executable", "")
    assert not line_process.is_worth_a_process(source)
    assert processes == []


class TestBegunEarly:
    @pytest.mark.usefixtures("nothing_is_read_here")
    def test_parse_takes_what_was_begun(self, tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
        path = report_in(tmp_path, 9000)
        assert path.stat().st_size > 1_000_000
        done = CliRunner().invoke(cli, ["parse", str(path), "-o", str(tmp_path / "launches.parquet")])
        assert done.exit_code == 0, done.output
        assert "9,000" in done.output
        assert [process.poll() is not None for process in processes] == [True]
        assert line_process._begun == {}

    def test_what_is_not_taken_ends(self, tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
        path = report_in(tmp_path)  # too small to be written as it is read
        with line_process.lines_begun([Source(str(path))]):
            parse_into(tmp_path / "launches.parquet", [Source(str(path))])
        assert [process.poll() is not None for process in processes] == [True]
        assert line_process._begun == {}

    def test_two_reports_are_not_begun(self, tmp_path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
        path = report_in(tmp_path)
        with line_process.lines_begun([Source(str(path)), Source(str(path))]):
            assert processes == []


def test_recognising_lines_needs_neither_numpy_nor_arrow() -> None:
    """They take longer to import than many a report to read."""
    code = "import sys, ncu_parsers.line_process; assert not {'numpy', 'pyarrow', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_parse_does_without_both_until_another_process_has_begun() -> None:
    code = "import sys, ncu_tools.cli.parse; assert not {'numpy', 'pyarrow', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rules_travel_once_each_and_beyond_those_kept_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_process, "LINES_KEPT", 2)
    monkeypatch.setattr(long_lines, "BYTES_OF_A_STRETCH", 700)
    path = report_in(tmp_path, 60)
    with as_if_apart(Source(str(path))) as lines:
        told = [
            rule["description"] for stretch in lines.stretches() for some in stretch.rules.values() for rule in some
        ]
    assert told == [f'Use "{number % 3}"' for number in range(60)]
    assert len(lines._rules) == 2
