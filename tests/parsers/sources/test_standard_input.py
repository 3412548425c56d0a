"""Input from a pipe is read like a file: as fast, repeatedly, and with the same launches."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import zstandard
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse.parse import parse_into
from ncu_parsers.sources import memory, standard_input
from ncu_parsers.sources.sources import Source
from ncu_parsers.sources.standard_input import BLOCK_BYTES, IN_MEMORY_BYTES, LOOKED_AT_BYTES, opened
from ncu_parsers.streaming import streaming_reader
from ncu_parsers.streaming.cells.rows import NotStreamed

from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES
from tests.parsers.parse.test_parts import report
from tests.parsers.streaming.test_streaming import TIME
from tests.support.called_here import called_here
from tests.support.nightly import one_in
from tests.support.ran import below_head
from tests.support.reports import needs_shared_reports, shared_reports
from tests.support.timelines import KERNELS, database, kernel
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report big enough to be streamed, and to be cached if it were a file."""
    path = tmp_path_factory.mktemp("big") / "report.csv"
    report(path, 7, (TIME, "us"), value="1.5" + "0" * 400, rows=10_000)
    return path


@pytest.fixture(scope="module")
def launches_of_the_file(big: Path) -> Path:
    """What a parse of the big report by its path writes."""
    program("parse", str(big), "-o", str(big.with_name("file.parquet")))
    return big.with_name("file.parquet")


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))


TIMELINES = [
    path
    for folder in ("kineto", "nsys", "other")
    for path in shared_reports(folder)
    if path.name.endswith((".json.gz", ".sqlite", ".csv")) and "results" not in path.name
]


def made_timelines(folder: Path) -> list[Path]:
    """A trace whose events begin behind 30 KB of settings, the same packed, an export of nsys and a table of it."""
    settings = [{"id": 0, "name": "NVIDIA H100", "of": "x" * 30_000}]
    kernels = [{"ph": "X", "cat": "kernel", "name": f"k{n}", "ts": n, "dur": 2.5, "pid": 1} for n in range(9)]
    trace = json.dumps({"deviceProperties": settings, "traceEvents": kernels}).encode()
    (folder / "trace.json").write_bytes(b"\n  " + trace)
    (folder / "trace.json.gz").write_bytes(gzip.compress(trace))
    export = database(folder / "made.sqlite", {KERNELS: [kernel(5 + 20 * n, n + 1) for n in range(4)]})
    (folder / "packed.sqlite.zst").write_bytes(zstandard.compress(export.read_bytes()))
    table = "Time (%),Total Time (ns),Instances,Avg (ns),Min (ns),Max (ns),Name\n100.0,900,3,300.0,200,400,gemm\n"
    (folder / "cuda_gpu_kern_sum.csv").write_text(table, "utf-8")
    return sorted(folder.iterdir())


def told(*arguments: str, data: bytes = b"") -> tuple[int, str]:
    """How a command ended, and what it said of a report, whatever that is called; `data` comes through a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        piped(patch, data)
        done = called_here(*arguments, cwd=Path.cwd())
    return done.code, done.out if arguments[1] == "-" else done.out.replace(arguments[1], "standard input")


def through_bash(script: str, report: Path) -> str:
    """The output of a script, in which `$ncu_bench` is the program and `$1` the report."""
    done = subprocess.run(
        ["/bin/bash", "-c", f"ncu_bench() {{ {shlex.join(PROGRAM)} \"$@\"; }}\n{script}", "bash", str(report)],
        capture_output=True, check=True, env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    return done.stdout.decode()


def program(*arguments: str, stdin: io.BufferedReader | None = None, data: bytes | None = None) -> str:
    done = subprocess.run(
        [*PROGRAM, *arguments], stdin=stdin, input=data, capture_output=True, check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    return done.stdout.decode()


class TestABigReport:
    @pytest.mark.parametrize("packed", [False, True])
    def test_through_a_pipe_gives_the_same_launches_as_the_file(
        self, packed: bool, big: Path, launches_of_the_file: Path, tmp_path: Path
    ) -> None:
        data = gzip.compress(big.read_bytes(), 1) if packed else big.read_bytes()
        program("parse", "-", "-o", str(tmp_path / "piped.parquet"), data=data)
        found, expected = read_launches(tmp_path / "piped.parquet"), read_launches(launches_of_the_file)
        assert set(found.column("report").to_pylist()) == {"standard input"}
        assert found.drop_columns(["report"]).equals(expected.drop_columns(["report"]))

    def test_redirected_by_the_shell_is_read_from_the_current_position(self, big: Path, tmp_path: Path) -> None:
        (tmp_path / "with-noise.csv").write_bytes(b"a line that head took\n" + big.read_bytes())
        with (tmp_path / "with-noise.csv").open("rb") as rest:
            os.lseek(rest.fileno(), len(b"a line that head took\n"), os.SEEK_SET)
            said = program("parse", "-", "-o", str(tmp_path / "l.parquet"), "--format", "json", stdin=rest)
        (row,) = json.loads(said)["rows"]
        assert (row["launches"], row["skipped"]) == (10_000, None)

    def test_gives_the_same_kernels_as_the_file(self, big: Path) -> None:
        found = json.loads(program("hotspots", "-", "--format", "json", data=big.read_bytes()))
        expected = json.loads(told("hotspots", str(big), "--format", "json")[1])["rows"]
        assert {row["report"] for row in found["rows"]} == {"standard input"}
        assert found["rows"] == [{**row, "report": "standard input"} for row in expected]
        assert found["rows"][0]["launches"] == 10_000

    @pytest.mark.parametrize("rows", [3, 10_000])
    def test_is_called_standard_input_and_so_is_a_small_one(
        self, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        report(tmp_path / "report.csv", 7, (TIME, "us"), value="1.5" + "0" * 400, rows=rows)
        piped(monkeypatch, (tmp_path / "report.csv").read_bytes())
        run = load("-")
        assert (run.name, len(run.table)) == ("standard input", rows)

    def test_is_streamed_and_not_read_whole(self, big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        piped(monkeypatch, big.read_bytes())
        assert parse_into(tmp_path / "l.parquet", [Source("-")]).table is None

    def test_that_cannot_be_streamed_is_read_again_from_its_beginning(
        self, big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        packed = gzip.compress(big.read_bytes(), 0)
        piped(monkeypatch, packed[: len(packed) // 2])
        with pytest.raises(NotStreamed, match="damaged"):
            streaming_reader.stream_report(Source("-"), lambda table: None)
        result = parse_into(tmp_path / "l.parquet", [Source("-")])
        assert result.written
        assert any("ends in damage" in note for note in result.reports[0].notes)
        assert 4000 < len(read_launches(tmp_path / "l.parquet")) < 6000


def test_a_page_of_piped_input_is_titled_standard_input(tmp_path: Path) -> None:
    told("report", "-", "-o", str(tmp_path / "page.html"), data=(SAMPLES / "d01-wide-raw.csv").read_bytes())
    assert re.search(r'"title": *"standard input"', (tmp_path / "page.html").read_text("utf-8"))


class TestATimeline:
    def test_through_a_pipe_is_read_as_its_file_is(self, tmp_path: Path) -> None:
        for path in made_timelines(tmp_path):
            of_the_file = told("hotspots", str(path), "--format", "csv")
            assert of_the_file[0] == 0, path
            assert told("hotspots", "-", "--format", "csv", data=path.read_bytes()) == of_the_file

    @needs_shared_reports
    @pytest.mark.parametrize("path", one_in(5, TIMELINES), ids=lambda path: path.name[:50])
    @pytest.mark.parametrize("command", ["hotspots", "timeline"])
    def test_made_by_others_is_read_through_a_pipe_as_its_file_is(self, command: str, path: Path) -> None:
        code, found = told(command, "-", "--format", "csv", data=path.read_bytes())
        assert (code, found) == told(command, str(path), "--format", "csv")

    @pytest.mark.parametrize(
        "arguments",
        [("timeline", "-"), ("report", "--format", "digest", "-"), ("hotspots", "--by", "layer", "-"), ("roofline", "-"),
         ("query", "-", "select 1 from launches"), ("timeline", "--by", "kernel", "-"), ("compare", "-", "FILE"),
         ("compare", "FILE", "-"), ("report", "-", "--as", "perfetto", "--lanes", "-o", "OUT.json"),
         ("parse", "-", "-o", "OUT.parquet"), ("report", "-", "-o", "OUT.html")],
        ids=lambda arguments: "-".join(arguments)[:20],
    )  # fmt: skip
    def test_is_read_by_every_command_that_takes_a_run(self, arguments: tuple[str, ...], tmp_path: Path) -> None:
        export = tmp_path / "made.sqlite"
        database(export, {KERNELS: [kernel(5 + 20 * n, n + 1) for n in range(4)]})
        places = {"FILE": str(export), "-o": "-o"}
        words = [places.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in arguments]
        code, _ = told(*words, data=export.read_bytes())
        assert code == told(*[str(export) if word == "-" else word for word in words])[0]
        assert code in (0, 1) if "layer" in arguments else code == 0

    def test_is_in_the_page_of_piped_input_too(self, tmp_path: Path) -> None:
        export = database(tmp_path / "made.sqlite", {KERNELS: [kernel(5 + 20 * n, n + 1) for n in range(4)]})
        told("report", "-", "-o", str(tmp_path / "page.html"), data=export.read_bytes())
        assert '"timeline":{"kinds"' in (tmp_path / "page.html").read_text("utf-8")

    @pytest.mark.parametrize(
        "script",
        ["cat $1 | ncu_bench hotspots /dev/stdin", "ncu_bench hotspots /dev/stdin < $1", "ncu_bench hotspots <(cat $1)",
         pytest.param("ncu_bench hotspots /dev/fd/7 7< <(cat $1)", marks=pytest.mark.nightly),
         "mkfifo $1.pipe; cat $1 > $1.pipe & ncu_bench hotspots $1.pipe"],
    )  # fmt: skip
    def test_is_read_from_every_kind_of_pipe_that_a_shell_makes(self, script: str, tmp_path: Path) -> None:
        export = database(tmp_path / "made.sqlite", {KERNELS: [kernel(5 + 20 * n, n + 1) for n in range(4)]})
        assert below_head(through_bash(script, export)) == below_head(told("hotspots", str(export))[1])

    def test_of_two_pipes_is_compared(self, tmp_path: Path) -> None:
        export = database(tmp_path / "made.sqlite", {KERNELS: [kernel(5 + 20 * n, n + 1) for n in range(4)]})
        assert "same" in through_bash("ncu_bench compare <(cat $1) <(cat $1)", export)


class TestBufferedInput:
    @pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, LOOKED_AT_BYTES + 3])
    @pytest.mark.parametrize("in_memory", [1, IN_MEMORY_BYTES])
    def test_is_complete_each_time_it_is_opened(
        self, size: int, in_memory: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(standard_input, "IN_MEMORY_BYTES", in_memory)
        data = os.urandom(size)
        piped(monkeypatch, data)
        came = standard_input.standard_input()
        assert came.size == min(size, LOOKED_AT_BYTES)
        with opened(came) as one, opened(came) as other:
            halves = one.read(size // 2), other.read(size // 3), one.read(), other.read()
        assert halves[0] + halves[2] == halves[1] + halves[3] == data

    def test_is_waited_for_on_a_non_blocking_pipe(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        data = os.urandom(3 * BLOCK_BYTES + 5)

        def write_slowly() -> None:
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                for at in range(0, len(data), BLOCK_BYTES // 2):
                    time.sleep(0.02)
                    pipe.write(data[at : at + BLOCK_BYTES // 2])

        writer = threading.Thread(target=write_slowly)
        with os.fdopen(reading, encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            writer.start()
            assert opened(standard_input.standard_input()).read() == data
            writer.join()

    def test_of_a_file_starts_at_its_current_position(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"0123456789")
        with (tmp_path / "file").open(encoding="utf-8") as file:
            os.lseek(file.fileno(), 4, os.SEEK_SET)
            monkeypatch.setattr(sys, "stdin", file)
            assert Source("-").size == 6
            assert [Source("-").head(3), Source("-").head(99)] == [b"456", b"456789"]

    def test_is_refused_each_time_if_it_exceeds_the_disk_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "limit", lambda: BLOCK_BYTES)
        piped(monkeypatch, os.urandom(6 * BLOCK_BYTES))
        for _ in range(2):  # what is left of it is no report
            with pytest.raises(memory.TooBig, match=r"Standard input takes more than 4\.19MB.* Save it to a file"):
                Source("-").head(5 * BLOCK_BYTES)

    def test_that_cannot_be_stored_is_an_error_with_advice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(standard_input, "IN_MEMORY_BYTES", 1)
        monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
        piped(monkeypatch, bytes(99))
        for _ in range(2):
            with pytest.raises(NcuBenchError, match=r"in a temporary file: No such file.* set TMPDIR"):
                Source("-").head(10)
