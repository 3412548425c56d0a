"""Output into pipes, through real ones: a reader that leaves early, no colours, whole and the same each time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLES
from tests.support.nightly import by_day
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

pytestmark = pytest.mark.slow

RELEASED = ROOT / "tests" / "released" / "schema-1"
RAW = str(SAMPLES / "d01-wide-raw.csv")
FEW = str(SAMPLES / "d04-long-metrics.csv")
RUN, SWEEP = str(RELEASED / "run"), str(RELEASED / "sweep")
TABLES = [
    [],
    ["--help"],
    ["parse", RAW, "-o", "launches.parquet"],
    ["hotspots", RAW],
    ["hotspots", RAW, "--format", "json"],
    ["hotspots", RAW, "--format", "csv"],
    ["hotspots", RAW, "--format", "markdown"],
    ["roofline", RAW],
    ["hotspots", "--by", "layer", RUN],
    ["kernel", RAW],
    ["source", str(SAMPLES / "d20-source-page.csv")],
    ["timeline", "--by", "kernel", RUN],
    ["query", RUN, "SELECT * FROM launches"],
    ["bench", SWEEP],
    ["compare", RAW, RAW],
    ["compare", RAW, RAW, "--fail-on", "time>5%"],
    ["machines", "--metrics"],
    ["machines", "--all-chips"],
    ["machines"],
    ["machines", "t4"],
    ["doctor"],
    ["mcp", "--schema", "hotspots"],
]
A_KIND_EACH = [
    ["--help"],
    ["hotspots", RAW],
    ["query", RUN, "SELECT * FROM launches"],
    ["mcp", "--schema", "hotspots"],
]
"""Of the commands: help, a table as text, rows of a query, a schema. Of gates is the next test."""
ESCAPE = b"\x1b"


def environment(**more: str) -> dict[str, str]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**buffered, "PYTHONPATH": PYTHONPATH, **more}


@pytest.mark.parametrize(
    "words", by_day(A_KIND_EACH, TABLES), ids=lambda words: " ".join(Path(word).name for word in words)
)
def test_a_reader_that_leaves_early_ends_a_command_without_a_trace(words: list[str], tmp_path: Path) -> None:
    """As `| head` does; the pipe is closed before the first line, so that every command meets it."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*PROGRAM, *words], stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(), check=False,
            timeout=120,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.decode().splitlines() if not line.startswith("note: ")]


def test_a_gate_keeps_its_verdict_when_nobody_reads_the_table(tmp_path: Path) -> None:
    slower = tmp_path / "slower.csv"
    text = Path(FEW).read_text("utf-8")
    slower.write_text(re.sub(r'"gpu__time_duration.sum","(\w+)","([\d,.]+)"', _ten_times, text), encoding="utf-8")
    reading, writing = os.pipe()
    os.close(reading)
    words = ["compare", FEW, str(slower), "--fail-on", "time>5%"]
    done = subprocess.run([*PROGRAM, *words], stdout=writing, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(writing)
    assert done.returncode == 3, done.stderr
    assert b"Broken" not in done.stderr


def _ten_times(cells: re.Match[str]) -> str:
    return f'"gpu__time_duration.sum","{cells[1]}","{float(cells[2].replace(",", "")) * 10:g}"'


@pytest.mark.skipif(os.name == "nt", reason="Windows has no bash")
@pytest.mark.parametrize("lines", by_day([3], [1, 3]))
def test_head_gets_its_lines_of_an_output_longer_than_a_pipe_holds(lines: int, tmp_path: Path) -> None:
    command = f'set -o pipefail; "$@" | head -n {lines}'
    query = "SELECT range, 'a row' FROM range(100000)"
    words = [*PROGRAM, "query", RUN, query, "--format", "csv"]
    done = subprocess.run(
        ["/bin/bash", "-c", command, "bash", *words], capture_output=True, cwd=tmp_path, env=environment(), check=False,
        timeout=120,
    )  # fmt: skip
    assert (done.returncode, len(done.stdout.splitlines())) == (0, lines)
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr


@pytest.mark.parametrize(
    "words",
    by_day(
        [["hotspots", RAW], []], [["hotspots", RAW], ["roofline", RAW], ["machines"], ["machines", "--metrics"], []]
    ),
)
def test_a_pipe_gets_plain_text_the_same_each_time_and_whatever_the_terminal(words: list[str], tmp_path: Path) -> None:
    settings: tuple[dict[str, str], ...] = (
        {}, {"NO_COLOR": "1", "TERM": "dumb"},
        {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"},
    )  # fmt: skip
    outputs = set()
    for setting in settings:
        done = subprocess.run(
            [*PROGRAM, *words], capture_output=True, cwd=tmp_path, env=environment(**setting), check=True, timeout=120
        )
        assert ESCAPE not in done.stdout + done.stderr
        assert max(map(len, done.stdout.decode().splitlines())) <= 120
        outputs.add(done.stdout)
    assert len(outputs) == 1


@pytest.mark.parametrize("width", by_day([80], [80, 120]))
def test_a_width_can_be_given_where_no_terminal_is(width: int) -> None:
    done = subprocess.run(
        [*PROGRAM, "hotspots", RAW], capture_output=True, env=environment(COLUMNS=str(width)), check=True
    )
    lines = done.stdout.decode().splitlines()
    assert max(map(len, lines)) <= width


def on_a_terminal(words: list[str], **settings: str) -> bytes:
    """What a command writes to a terminal, on standard output and standard error together."""
    import pty

    terminal, inner = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *words], stdin=inner, stdout=inner, stderr=inner, env=environment(TERM="xterm-256color", **settings)
    ) as running:
        os.close(inner)
        written = b""
        try:
            while block := os.read(terminal, 4096):
                written += block
        except OSError:  # Linux's answer to reading a terminal that nobody writes to any more
            pass
        finally:
            os.close(terminal)
    assert running.returncode == 0
    return written


@pytest.mark.skipif(os.name == "nt", reason="Windows has no terminals of this kind")
@pytest.mark.parametrize(
    "words",
    by_day(
        [["hotspots", RAW], ["parse", RAW, "-o", "{}"]],
        [["hotspots", RAW], ["machines", "t4"], ["doctor"], ["parse", RAW, "-o", "{}"]],
    ),
)
def test_no_colour_is_written_to_a_terminal_where_none_is_wanted(words: list[str], tmp_path: Path) -> None:
    words = [word.replace("{}", str(tmp_path / "launches.parquet")) for word in words]
    written = on_a_terminal(words, NO_COLOR="1", COLUMNS="100")
    assert b"\x1b[3" not in written.replace(b"\x1b[?25", b"")  # neither a colour of text nor of its ground
    assert b"\x1b[4" not in written
    assert len(written) > 100


@pytest.mark.skipif(os.name == "nt", reason="Windows has no terminals of this kind")
def test_a_terminal_counts_the_reports_of_a_folder_and_names_files_without_their_folders(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"report-{number}.csv").write_bytes(Path(FEW).read_bytes())
    written = on_a_terminal(["hotspots", str(tmp_path)], COLUMNS="100").decode()
    assert re.search("Reading 3 of 3 .*━.* report-2.csv", re.sub(r"\x1b\[[\d;?]*\w", "", written))
    one = on_a_terminal(["hotspots", str(tmp_path / "report-1.csv")], COLUMNS="100").decode()
    assert "Reading report-1.csv" in one


@pytest.mark.skipif(os.name == "nt", reason="Windows has no terminals of this kind")
def test_a_command_that_is_interrupted_while_it_reads_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    import pty

    os.mkfifo(tmp_path / "report.csv")
    terminal, inner = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "hotspots", str(tmp_path / "report.csv")], stderr=inner, env=environment(TERM="xterm-256color")
    ) as running:
        os.close(inner)
        written = b""
        while b"Reading" not in written:
            written += os.read(terminal, 4096)
        running.send_signal(signal.SIGINT)
        with suppress(OSError):  # Linux's answer to reading a terminal that nobody writes to any more
            while block := os.read(terminal, 4096):
                written += block
        os.close(terminal)
    assert running.returncode == 130
    assert written.rfind(b"\x1b[?25h") > written.rfind(b"\x1b[?25l")  # the cursor is shown
    assert b"Traceback" not in written
