"""The command line as users and scripts run it: through click's runner, and as a real process."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_parsers.parquet.reader import read_launches

from ncu_tools.cli import COMMANDS, run
from ncu_tools.numbers.number_format import more_kernels
from tests.conftest import ROOT, SAMPLES
from tests.support.ran import below_head

pytestmark = pytest.mark.slow

RAW = str(SAMPLES / "d01-wide-raw.csv")
METRICS = str(SAMPLES / "d04-long-metrics.csv")
RULES = str(SAMPLES / "d02-long-rules.csv")
BARE = str(SAMPLES / "d05-legacy-long.csv")
FAILED = str(SAMPLES / "d14-kernel-failed.csv")
DENIED = str(SAMPLES / "d15-no-permission.csv")
PYTHONPATH = os.pathsep.join(str(ROOT / part) for part in (".", "launch", "parsers"))
PROGRAM = [sys.executable, "-c", "from ncu_tools.cli import program; program()"]


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    def _call(*arguments: str) -> Result:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return _call


def process(*arguments: str, stdin: bytes | None = None, cwd: Path | None = None) -> Result:
    done = subprocess.run(
        [*PROGRAM, *arguments], input=stdin, capture_output=True, cwd=cwd, check=False,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "COLUMNS": "120"},
    )  # fmt: skip
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


class TestEveryCommand:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_has_help_with_an_example(self, name: str, call: Any) -> None:
        result = call(name, "--help")
        assert result.code == 0
        assert "Example:" in result.out
        assert f"ncu-bench {name}" in result.out

    @pytest.mark.parametrize(
        "arguments",
        [["parse", METRICS, "-o", "{out}"], ["hotspots", RAW], ["roofline", RAW], ["machines"], ["machines", "t4"]],
    )
    def test_prints_only_json_on_standard_output(self, arguments: list[str], call: Any, tmp_path: Path) -> None:
        arguments = [argument.format(out=tmp_path / "out.parquet") for argument in arguments]
        result = call(*arguments, "--format", "json")
        document = result.json()
        assert result.code == 0
        assert (document["schema_version"], document["command"]) == (1, arguments[0])
        assert document["rows"]
        assert all(set(row) == set(document["columns"]) for row in document["rows"])
        assert isinstance(document["notes"], list)

    @pytest.mark.parametrize("arguments", [["hotspots", RAW], ["roofline", RAW], ["machines"]])
    def test_prints_csv_that_reads_back_equal_to_the_json(self, arguments: list[str], call: Any) -> None:
        rows = list(csv.DictReader(io.StringIO(call(*arguments, "--format", "csv").out)))
        document = call(*arguments, "--format", "json").json()
        assert len(rows) == len(document["rows"])
        for row, expected in zip(rows, document["rows"], strict=True):
            for name, value in expected.items():
                if not isinstance(value, (list, dict)) and name != "run":
                    assert row[name] == ("" if value is None else str(value))

    @pytest.mark.parametrize("arguments", [["hotspots", RAW], ["roofline", RAW], ["machines"]])
    def test_prints_a_markdown_table(self, arguments: list[str], call: Any) -> None:
        lines = call(*arguments, "--format", "markdown").out.splitlines()
        lines = lines[next(place for place, line in enumerate(lines) if line.startswith("| ")) :]
        assert lines[0].startswith("| ")
        assert set(lines[1]) <= set("|-: ")
        assert lines[0].count("|") == lines[2].replace("\\|", "").count("|")


class TestParse:
    def test_writes_a_row_per_launch_and_lists_the_reports_read(self, call: Any, tmp_path: Path) -> None:
        out = tmp_path / "launches.parquet"
        result = call("parse", str(SAMPLES / "d03-long-log.csv"), "-o", str(out), "--wide")
        assert result.code == 0
        assert len(read_launches(out)) == 8
        assert "d03-long-log.csv" in result.out
        assert "4 program output, 3 message of the tool, 1 blank line" in result.out

    def test_writes_the_good_reports_and_exits_with_1_for_the_others(self, call: Any, tmp_path: Path) -> None:
        out = tmp_path / "launches.parquet"
        result = call("parse", METRICS, DENIED, str(SAMPLES / "d20-source-page.csv"), "-o", str(out))
        assert result.code == 1
        assert len(read_launches(out)) == 8
        assert result.err.count("Error: ") == 2
        assert "NVreg_RestrictProfilingToAdminUsers=0" in result.err
        assert "is a source page" in result.err

    def test_writes_nothing_when_nothing_could_be_read(self, call: Any, tmp_path: Path) -> None:
        result = call("parse", DENIED, "-o", str(tmp_path / "out.parquet"))
        assert result.code == 1
        assert result.out == ""
        assert list(tmp_path.glob("*")) == []

    def test_joins_the_sections_of_one_report_and_separates_them_on_request(self, call: Any, tmp_path: Path) -> None:
        sections = sorted(map(str, SAMPLES.glob("d17-*.csv")))
        out = tmp_path / "out.parquet"
        assert "joined into one row each" in call("parse", *sections, "-o", str(out)).err
        assert len(read_launches(out)) == 3
        call("parse", *sections, "--separate", "-o", str(out))
        assert len(read_launches(out)) == 6

    def test_names_failed_launches(self, call: Any, tmp_path: Path) -> None:
        result = call("parse", FAILED, "-o", str(tmp_path / "out.parquet"))
        assert result.code == 0
        assert "1 launch failed while profiled: kept, and marked failed" in result.err

    def test_reads_a_whole_folder(self, call: Any, tmp_path: Path) -> None:
        result = call("parse", str(SAMPLES), "-o", str(tmp_path / "out.parquet"), "--format", "json")
        assert result.code == 1
        assert len(result.json()["refused"]) == 4  # two without kernels, two source pages
        assert len(read_launches(tmp_path / "out.parquet")) > 15


class TestHotspots:
    def test_shows_the_hottest_kernel_first_with_its_bound(self, call: Any) -> None:
        lines = below_head(call("hotspots", RAW).out).splitlines()
        assert "gemm bf16 128x256x32 tn" in lines[2]
        assert "tensor BF16" in lines[2]
        assert "77.0 %" in lines[2]

    def test_reads_parquet_like_the_report_it_came_from(self, call: Any, tmp_path: Path) -> None:
        call("parse", METRICS, "-o", str(tmp_path / "l.parquet"))
        from_parquet, from_report = (
            call("hotspots", run, "--format", "csv").out for run in (str(tmp_path / "l.parquet"), METRICS)
        )
        assert from_parquet == from_report

    def test_reads_a_run_folder(self, call: Any, tmp_path: Path) -> None:
        call("parse", METRICS, "-o", str(tmp_path / "launches.parquet"))
        assert call("hotspots", str(tmp_path)).code == 0

    def test_leaves_flops_empty_and_names_the_metrics_to_collect(self, call: Any) -> None:
        result = call("hotspots", RULES, "--format", "json")
        for row in result.json()["rows"]:
            assert (row["flops"], row["flops_per_s"], row["arithmetic_intensity"], row["bound"]) == (None,) * 4
        assert any("ask ncu for --metrics smsp__sass" in note for note in result.json()["notes"])

    def test_marks_lower_bounds(self, call: Any) -> None:
        assert "≥ " in call("hotspots", BARE).out
        assert all(
            row["flops_lower_bound"]
            for row in call("hotspots", BARE, "--format", "json").json()["rows"]
            if row["flops"]
        )

    def test_shows_the_top_and_notes_how_much_is_hidden(self, call: Any) -> None:
        result = call("hotspots", RAW, "--top", "2")
        assert len(below_head(result.out).splitlines()) == 4
        assert "4 more kernels take 23.4 % of the time" in result.err
        document = call("hotspots", RAW, "--top", "2", "--format", "json").json()
        assert len(document["rows"]) == 2
        assert document["notes"][0].startswith("4 more kernels")

    @pytest.mark.parametrize(
        ("shares", "said"),
        [
            ([0.25], "1 more kernel takes 25.0 % of the time"),
            ([0.25, None], "2 more kernels take at least 25.0 % of the time"),
            ([None], "1 more kernel, whose share of the time is not known"),
            ([None, None], "2 more kernels, whose share of the time is not known"),
        ],
    )
    def test_notes_what_is_known_of_hidden_kernels(self, shares: list[float | None], said: str) -> None:
        assert more_kernels(shares) == said

    def test_has_every_column_if_that_was_asked_for(self, call: Any) -> None:
        titles = (
            "launches",
            "time",
            "share",
            "sum",
            "mean",
            "min",
            "max",
            "std",
            "FLOPs",
            "FLOP/s",
            "DRAM",
            "DRAM B/s",
            "FLOP/B",
        )
        head = below_head(call("hotspots", RAW, "--wide").out).splitlines()[0].split()
        assert [title for title in titles if not set(title.split()) <= set(head)] == []
        assert "std" not in call("hotspots", RAW).out

    def test_full_names_are_not_cut(self, call: Any) -> None:
        assert "..." not in call("hotspots", RAW, "--full-names").out
        assert "(T1::Params)" in call("hotspots", RAW, "--full-names").out
        assert "(T1::Params)" not in call("hotspots", RAW, "--wide").out

    def test_full_names_with_double_width_letters_are_not_cut(self, call: Any, tmp_path: Path) -> None:
        name = "行列の積を求めるカーネル" * 4
        wide = tmp_path / "wide.csv"
        wide.write_text(Path(METRICS).read_text("utf-8").replace("triad(", f"{name}("), encoding="utf-8")
        assert name in call("hotspots", str(wide), "--full-names", "--wide").out

    @pytest.mark.parametrize("order", ["time", "flops", "dram"])
    @pytest.mark.parametrize("rows", ["name", "short", "grid", "nvtx"])
    def test_every_order_works_with_all_rows(self, order: str, rows: str, call: Any) -> None:
        assert call("hotspots", RAW, "--by", rows, "--sort", order).code == 0

    def test_control_characters_in_a_name_do_not_reach_the_terminal(self, call: Any, tmp_path: Path) -> None:
        evil = tmp_path / "evil.csv"
        evil.write_text(Path(METRICS).read_text().replace("triad(", "\x1b[31mtriad\x07("))
        result = call("hotspots", str(evil))
        assert "\x1b" not in result.out
        assert "\\x1b[31mtriad\\x07" in result.out


class TestRoofline:
    def test_writes_a_complete_picture(self, call: Any, tmp_path: Path) -> None:
        for suffix in ("svg", "png", "pdf"):
            picture = tmp_path / f"roofline.{suffix}"
            assert call("roofline", RAW, "-o", str(picture)).code == 0
            assert picture.stat().st_size > 5000
        assert ET.parse(tmp_path / "roofline.svg").getroot().tag.endswith("svg")  # noqa: S314  our own file
        assert len(list(tmp_path.glob("roofline*"))) == len(list(tmp_path.glob("*.*"))) == 3

    def test_json_has_every_point_ceiling_and_ridge(self, call: Any) -> None:
        document = call("roofline", RAW, "--format", "json").json()
        assert len(document["rows"]) == 6
        ceilings = {ceiling["unit"]: ceiling for ceiling in document["ceilings"]}
        assert set(ceilings) == {"dram", "fp32", "fp64", "tensor_bf16"}
        assert ceilings["dram"]["value"] == pytest.approx(1280 * 1.215e9)
        assert all(ceiling["source"].startswith("report") for ceiling in ceilings.values())
        ridges = {ridge["unit"]: ridge["intensity"] for ridge in document["ridge_points"]}
        assert ridges["fp32"] == pytest.approx(2 * 64 * 108 * 1.08e9 / (1280 * 1.215e9))

    def test_several_runs_share_a_picture(self, call: Any, tmp_path: Path) -> None:
        document = call("roofline", RAW, BARE, "-o", str(tmp_path / "both.svg"), "--format", "json").json()
        assert {row["run"] for row in document["rows"]} == {RAW, BARE}

    def test_a_machine_alone_is_a_bare_roofline(self, call: Any, tmp_path: Path) -> None:
        document = call(
            "roofline", "--machine", "a100-sxm4-40gb", "-o", str(tmp_path / "a100.svg"), "--format", "json"
        ).json()
        assert document["rows"] == []
        assert {ridge["unit"]: round(ridge["intensity"], 1) for ridge in document["ridge_points"]}[
            "tensor_bf16"
        ] == 200.6


class TestMachines:
    def test_a_machine_shows_dense_and_sparse_rates_with_their_source(self, call: Any) -> None:
        result = call("machines", "H100-SXM")
        assert "1.979 PFLOP/s" in result.out
        assert "3.958 PFLOP/s" in result.out
        assert "whitepaper" in result.out

    def test_a_machine_without_a_source_for_its_clock_says_so_and_states_no_number(self, call: Any) -> None:
        assert call("machines", "b300").err == (
            "note: NVIDIA B300, chip GB110, compute capability 10.3, 148 SMs\n"
            "note: not known, for want of a source: clock\n"
        )

    def test_check_passes_on_the_shipped_files(self, call: Any) -> None:
        assert call("machines", "--check").out == "74 machine files are valid\n"
        assert call("machines", "--check", "--format", "json").json()["rows"] == []


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "code", "says"),
        [
            (["hotspots"], 2, "Missing argument"),
            (["hotspots", "no-such.csv"], 1, "does not exist"),
            (["hotspots", RAW, "--by", "colour"], 2, "Invalid value"),
            (["hotspots", RAW, "--machine", "h100-sxm6"], 2, "h100-sxm"),
            (["hotspots", DENIED], 1, "NVreg_RestrictProfilingToAdminUsers=0"),
            (["roofline"], 2, "No run was named"),
            (["roofline", RAW, "-o", "picture.gif"], 2, ".svg, .png, .pdf or .txt"),
            (["parse", RAW, "-o", "no/such/folder/x.parquet"], 1, "mkdir -p no/such/folder"),
            (["machines", "toaster"], 2, "See ncu-bench machines"),
            (["profil"], 2, "No such command"),
        ],
    )
    def test_say_what_happened_and_exit_with_their_code(
        self, arguments: list[str], code: int, says: str, call: Any
    ) -> None:
        result = call(*arguments)
        assert result.code == code
        assert says in result.err
        assert "Traceback" not in result.err

    def test_debug_shows_the_traceback(self) -> None:
        assert "Traceback" in process("--debug", "hotspots", "no-such.csv").err


class TestAsAProcess:
    def test_reads_a_report_from_standard_input(self, tmp_path: Path) -> None:
        result = process("parse", "-", "-o", "out.parquet", stdin=Path(METRICS).read_bytes(), cwd=tmp_path)
        assert result.code == 0
        assert len(read_launches(tmp_path / "out.parquet")) == 8

    def test_keeps_notes_off_standard_output(self) -> None:
        result = process("hotspots", BARE, "--format", "csv")
        assert "note:" in result.err
        assert "note:" not in result.out

    def test_a_closed_output_pipe_is_not_an_error(self) -> None:
        with subprocess.Popen(
            [*PROGRAM, "machines", "--format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
        ) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            running.stdout.close()
            assert b"Traceback" not in running.stderr.read()

    def test_help_imports_click_and_nothing_heavy(self) -> None:
        assert loaded_by("--help") & {"numpy", "pyarrow", "pandas", "matplotlib", "rich", "torch"} == set()

    def test_commands_import_no_heavy_module_they_do_not_need(self, tmp_path: Path) -> None:
        folder = f"{tmp_path}{os.sep}"
        commands = (
            ["parse", METRICS, "-o", str(tmp_path / "x.parquet")],
            ["parse", METRICS, "-o", folder],
            ["hotspots", METRICS],
            ["hotspots", folder],
            ["hotspots", "--by", "layer", METRICS],
            ["roofline", METRICS],
            ["compare", METRICS, METRICS],
            ["report", METRICS, "-o", str(tmp_path / "x.html")],
        )
        for arguments, loaded in zip(commands, loaded_by_each(*commands), strict=True):
            assert loaded & {"pandas", "matplotlib", "torch", "zmq", "pyarrow.compute"} == set(), arguments

    def test_source_imports_neither_parquet_nor_the_help_of_arrows_functions_for_a_page(self) -> None:
        loaded = loaded_by("source", str(SAMPLES / "d20-source-page.csv"))
        assert loaded & {"pandas", "pyarrow.compute", "pyarrow.parquet", "ncu_tools.runs.loading"} == set()

    def test_a_large_report_is_parsed_once_and_cached(self, tmp_path: Path) -> None:
        big = tmp_path / "big.csv"
        header, *rows = Path(METRICS).read_text().splitlines(keepends=True)
        copies = ("".join(rows).replace('"4711"', f'"{process_id}"') for process_id in range(100))
        big.write_text(header + "".join(copies) + rows[0][:60])
        assert big.stat().st_size > 4_000_000
        first, second = (process("hotspots", str(big), "--format", "json") for _ in range(2))
        assert first.json()["rows"] == second.json()["rows"]
        assert first.json()["notes"] == second.json()["notes"]
        assert [
            note for note in second.json()["notes"] if "row cut off at the end of the file, the first in line" in note
        ]
        kept = list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.parquet"))
        assert len(kept) == 1
        big.write_text(big.read_text().replace('"99"', '"98"', 1))
        process("hotspots", str(big))
        assert len(list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.parquet"))) == 2


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command loads."""
    (loaded,) = loaded_by_each(list(arguments))
    return loaded


def loaded_by_each(*commands: list[str]) -> list[set[str]]:
    """The modules that are loaded after each of some commands, which run one after the other in a process."""
    code = (
        "import sys\nfrom ncu_tools.cli import run\nimport contextlib, io\n"
        f"for arguments in {list(commands)!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()): run(arguments)\n"
        "    print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )
    return [set(line.split()) for line in done.stdout.splitlines()]


class TestExistingFiles:
    @pytest.mark.parametrize(
        "command", ["parse {0} -o {0}", "parse {0} --times {1} -o {1}", "report {0} -o {0} --as csv"]
    )
    def test_are_not_overwritten_by_a_command_that_reads_them(self, command: str, call: Any, tmp_path: Path) -> None:
        files = [tmp_path / name for name in ("report.csv", "timeline.csv")]
        for file in files:
            file.write_bytes(Path(METRICS).read_bytes())
        result = call(*command.format(*files).split())
        assert result.code == 2
        assert "would be written over" in result.err
        assert [file.read_bytes() for file in files] == [Path(METRICS).read_bytes()] * 2

    def test_are_not_overwritten_by_a_table_if_they_are_reports(self, call: Any, tmp_path: Path) -> None:
        other = tmp_path / "other.csv"
        other.write_bytes(Path(RAW).read_bytes())
        result = call("parse", METRICS, "-o", str(other))
        assert (result.code, other.read_bytes()) == (2, Path(RAW).read_bytes())
        assert "is no Parquet file" in result.err

    def test_are_overwritten_by_a_table_if_they_are_parquet(self, call: Any, tmp_path: Path) -> None:
        for report in (RAW, METRICS):
            assert call("parse", report, "-o", str(tmp_path / "launches.parquet")).code == 0

    def test_are_not_read_for_an_empty_argument(self, call: Any, tmp_path: Path) -> None:
        for command in (["hotspots", ""], ["parse", "", "-o", str(tmp_path / "x.parquet")]):
            result = call(*command)
            assert result.code == 2
            assert "without a name was asked for" in result.err

    def test_are_not_overwritten_by_gates(self, call: Any, tmp_path: Path) -> None:
        report = tmp_path / "a.csv"
        report.write_bytes(Path(RAW).read_bytes())
        result = call("compare", str(report), METRICS, "--fail-on", "time>5%", "--junit", str(report))
        assert (result.code, report.read_bytes()) == (2, Path(RAW).read_bytes())

    def test_in_a_run_folder_are_its_launches_for_export(self, call: Any, tmp_path: Path) -> None:
        launches = tmp_path / "launches.parquet"
        assert call("parse", RAW, "-o", str(launches)).code == 0
        before = launches.read_bytes()
        result = call("report", str(tmp_path), "-o", str(launches), "--as", "csv")
        assert (result.code, launches.read_bytes()) == (2, before)

    def test_that_are_pipes_are_not_replaced_and_can_be_read(self, call: Any, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        written = call("parse", RAW, "-o", str(pipe))
        assert written.code == 1
        assert "it is no regular file" in written.err
        assert pipe.is_fifo()
        writer = threading.Thread(target=lambda: pipe.write_bytes(Path(RAW).read_bytes()))
        writer.start()
        read = call("hotspots", str(pipe))
        writer.join()
        assert (read.code, below_head(read.out)) == (0, below_head(call("hotspots", RAW).out))

    def test_of_kernels_are_not_read_as_launches(self, call: Any, tmp_path: Path) -> None:
        assert call("parse", RAW, "-o", str(tmp_path / "launches.parquet")).code == 0
        for command in ("hotspots", "roofline", "layers"):
            result = call(command, str(tmp_path / "kernels.parquet"))
            assert result.code == 1
            assert "holds the kernels of a file of launches" in result.err


def test_a_run_that_ended_early_has_a_note_and_is_not_compared(call: Any, tmp_path: Path) -> None:
    for name, partial in (("whole", False), ("cut", True), ("other", False)):
        folder = tmp_path / name
        folder.mkdir()
        assert call("parse", RAW, "-o", str(folder / "launches.parquet")).code == 0
        write_manifest(Manifest([], "ncu", "2026-11-22T00:00:00+00:00", partial=partial), folder)
    whole, cut, other = (str(tmp_path / name) for name in ("whole", "cut", "other"))
    assert "the run ended early" in call("hotspots", cut).err
    assert "ended early" not in call("hotspots", whole).err
    gated = call("compare", whole, cut, "--fail-on", "time>5%")
    assert gated.code == 4
    assert "end: as it should in the base, early in the new run" in gated.err
    assert call("compare", whole, other, "--fail-on", "time>5%").code == 0
    assert call("compare", whole, cut, "--anyway").code == 0


def test_a_run_folder_without_tables_says_that_its_run_did_not_end(call: Any, tmp_path: Path) -> None:
    for folder in ("run/reports", "run/logs", "reports"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("run/reports", "reports"):
        (tmp_path / folder / "ncu.csv").write_bytes(Path(RAW).read_bytes())
    said = "the run wrote no tables: it still runs, or was stopped before its end"
    assert said in call("hotspots", str(tmp_path / "run")).err
    assert said not in call("hotspots", str(tmp_path / "reports")).err


def test_a_file_redirected_by_the_shell_is_read_by_its_own_path(tmp_path: Path) -> None:
    with Path(RAW).open("rb") as stream:
        done = subprocess.run(
            [*PROGRAM, "parse", "/dev/stdin", "-o", str(tmp_path / "launches.parquet"), "--format", "json"],
            env={**os.environ, "PYTHONPATH": PYTHONPATH}, stdin=stream, capture_output=True, check=True,
        )  # fmt: skip
    assert json.loads(done.stdout)["rows"][0]["report"] == str(Path(RAW).resolve())


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_not_an_error(closed: str, tmp_path: Path) -> None:
    words = [*PROGRAM, "parse", RAW, "-o", str(tmp_path / "launches.parquet")]
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *words], env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(read_launches(tmp_path / "launches.parquet")) == 8


def test_an_unknown_backend_of_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    result = process("roofline", RAW, "-o", str(tmp_path / "r.svg"))
    assert result.code == 1
    assert 'cannot start with MPLBACKEND="nonsense"' in result.err
    assert "unset MPLBACKEND" in result.err


def test_a_user_without_a_home_reads_reports(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert call("hotspots", RAW).code == 0


def ended(code: str) -> subprocess.CompletedProcess[str]:
    """A Python program that has run to its end."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )  # fmt: skip


class TestTheExit:
    """The installed command exits without tearing down imported modules."""

    def test_comes_after_all_other_exit_handlers(self) -> None:
        code = (
            "import atexit, ncu_tools.cli as cli\n"
            "def command(arguments):\n"
            "    atexit.register(print, 'last words')\n"
            "    print('x' * 100_000)\n"
            "    return 3\n"
            "cli.run = command\n"
            "cli.program()"
        )
        done = ended(code)
        assert (done.returncode, done.stderr) == (3, "")
        assert done.stdout == "x" * 100_000 + "\nlast words\n"

    def test_is_left_to_the_caller_if_another_program_calls_main(self) -> None:
        code = (
            "import atexit, sys\n"
            "from ncu_tools.cli import main\n"
            "atexit.register(print, 'theirs')\n"
            "try:\n"
            "    main(['nonsense'])\n"
            "except SystemExit as error:\n"
            "    sys.exit(40 + error.code)"
        )
        done = ended(code)
        assert (done.returncode, done.stdout) == (42, "theirs\n")

    def test_after_an_uncaught_error_is_python_s(self) -> None:
        code = (
            "import ncu_tools.cli as cli\n"
            "def command(arguments):\n"
            "    raise ZeroDivisionError('not ours')\n"
            "cli.run = command\n"
            "cli.program()"
        )
        done = ended(code)
        assert done.returncode == 1
        assert "ZeroDivisionError: not ours" in done.stderr
