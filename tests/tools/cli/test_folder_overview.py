"""What ncu-bench alone says in a folder: what is there, by kind, and commands that work there."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest
from ncu_parsers.parse.warp_trace_files import write_warp_trace

from ncu_tools.cli import run
from ncu_tools.cli.shell import folder_overview
from ncu_tools.cli.shell.folder_overview import FolderLook, looked_at, next_commands, overview
from tests.conftest import ROOT, SAMPLES
from tests.parsers.timelines.test_rocprofv3 import launched
from tests.parsers.timelines.test_xplane import step
from tests.support import warp_files
from tests.support.nightly import by_day
from tests.support.other_timelines import rocprof_json, xspace
from tests.support.warp_pipelines import drawn, simulated
from tests.tools.cli.test_cli import loaded_by, process

pytestmark = pytest.mark.slow

RELEASED = ROOT / "tests" / "released" / "schema-1"
TRACE = '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 1}]}'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def put(source: Path, target: Path, changed: float = 1e9) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    for file in (target, *target.rglob("*")):
        os.utime(file, (changed, changed))


def said() -> str:
    return "\n".join(overview(Path()))


def commands() -> list[str]:
    return [command for command, _ in next_commands(looked_at(Path()))]


def test_an_empty_folder_gets_the_three_ways_to_begin(here: Path) -> None:
    result = process(cwd=here)
    assert (result.code, result.err) == (0, "")
    assert [line.split("   ")[0].strip() for line in result.out.splitlines()[1:4]] == [
        "ncu-bench profile resnet18", "ncu-bench profile -- ./program", "ncu-bench hotspots path/to/report",
    ]  # fmt: skip
    assert "Three ways to begin:" in result.out


def test_every_kind_is_counted_and_the_newest_named_first(here: Path) -> None:
    for number, name in enumerate(
        ["d01-wide-raw.csv", "d18-text.txt", "d04-long-metrics.csv", "d06-legacy-thousands.csv"]
    ):
        put(SAMPLES / name, here / name, 1e9 + number)
    put(SAMPLES / "d20-source-page.csv", here / "source.csv")
    put(RELEASED / "run", here / "runs" / "older", 1e9)
    put(RELEASED / "run", here / "runs" / "newer", 1e9 + 1)
    put(RELEASED / "sweep", here / "sweep")
    put(RELEASED / "report.parquet", here / "tables" / "report.parquet")
    (here / "trace.json").write_text(TRACE, encoding="utf-8")
    lines = said().splitlines()
    assert [" ".join(line.split()) for line in lines[1 : lines.index("")]] == [
        "2 run folders runs/newer, runs/older",
        "1 sweep of measured points sweep",
        "1 Parquet file of launches tables/report.parquet",
        "4 reports of ncu d06-legacy-thousands.csv, d04-long-metrics.csv, d18-text.txt and 1 more",
        "1 source page of ncu source.csv",
        "1 trace in Chrome's format trace.json",
    ]
    assert commands() == [
        "ncu-bench hotspots runs/newer",
        "ncu-bench roofline runs/newer -o roofline.svg",
        "ncu-bench bench sweep",
        "ncu-bench compare runs/older runs/newer",
    ]


def test_recordings_of_other_profilers_are_named(here: Path) -> None:
    (here / "results.json").write_bytes(rocprof_json(launched()))
    (here / "host.xplane.pb").write_bytes(xspace(*step()))
    (here / "model.pb").write_bytes(b"\n\x03abc")
    lines = [" ".join(line.split()) for line in said().splitlines()]
    assert lines[1].startswith("2 recordings of other profilers")
    assert any(command.startswith("ncu-bench hotspots") for command in commands())


def test_of_a_recording_the_timeline_is_the_next_to_look_at(here: Path) -> None:
    (here / "trace.json").write_text(TRACE, encoding="utf-8")
    assert commands()[:2] == ["ncu-bench hotspots trace.json", "ncu-bench timeline trace.json"]
    put(SAMPLES / "d01-wide-raw.csv", here / "report.csv")
    assert commands()[1] == "ncu-bench roofline report.csv -o roofline.svg"


def test_timelines_inside_kernels_are_named_with_their_command(here: Path) -> None:
    trace = simulated(drawn(1, 1, 4, 1)).trace()
    (here / "iket.trace.json").write_bytes(warp_files.iket(trace))
    (here / "k.hatchet").write_bytes(warp_files.tree(trace))
    write_warp_trace(here / "ranges.parquet", trace, "a")
    assert "3 timelines inside kernels" in said()
    (command,) = commands()
    assert command.endswith("--part inside")
    assert process(*shlex.split(command)[1:], cwd=here).code == 0


def test_what_no_command_reads_is_not_listed(here: Path) -> None:
    (here / "notes.txt").write_text("ID, Kernel Name and other words\n", encoding="utf-8")
    (here / "data.csv").write_text("a,b,c,d\n1,2,3,4\n", encoding="utf-8")
    (here / "settings.json").write_text('{"a": 1}', encoding="utf-8")
    (here / "empty.csv").touch()
    (here / "other.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")
    (here / "other.sqlite").write_bytes(b"SQLite format 3\0" + bytes(200))
    put(SAMPLES / "d15-no-permission.csv", here / "denied.csv")  # ncu failed
    assert looked_at(Path()).found == []
    assert "Three ways to begin" in said()


def test_files_of_a_run_folder_are_not_listed_beside_it(here: Path) -> None:
    put(RELEASED / "run", here / "run")
    put(SAMPLES / "d01-wide-raw.csv", here / "run" / "reports" / "report.csv")
    put(RELEASED / "run", here / "unfinished")
    (here / "unfinished" / "launches.parquet").unlink()
    assert [(one.kind, str(one.path)) for one in looked_at(Path()).found] == [("run", "run")]


def test_a_dataset_is_one_thing(here: Path) -> None:
    for name in ("a", "b"):
        assert run(["parse", str(SAMPLES / "d01-wide-raw.csv"), "-o", "fleet/", "--run", name]) == 0
    assert [(one.kind, str(one.path)) for one in looked_at(Path()).found] == [("dataset", "fleet")]


KINDS = [
    ["d20-source-page.csv"], ["run", "run"], ["report.parquet"], ["trace.json"], ["d01-wide-raw.csv", "trace.json"],
    ["d01-wide-raw.csv", "sweep", "run", "run"],
]  # fmt: skip


@pytest.mark.parametrize("there", by_day(KINDS, [*KINDS, ["d01-wide-raw.csv"], ["run"], ["sweep"]]))
def test_two_to_four_commands_fit_what_is_there_and_work(
    there: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(there):
        if name == "trace.json":
            (here / name).write_text(TRACE, encoding="utf-8")
        else:
            put((SAMPLES if (SAMPLES / name).exists() else RELEASED) / name, here / f"{number} {name}")
    found = commands()
    assert 2 <= len(found) <= 4
    for command in found:
        code = run(shlex.split(command)[1:])
        assert (code, command) == (0, command), capsys.readouterr().err


def test_names_are_quoted_for_a_shell_and_cannot_act_on_a_terminal(here: Path) -> None:
    put(SAMPLES / "d01-wide-raw.csv", here / "-o; touch x\x1b.csv")
    assert shlex.split(commands()[0])[2] == "./-o; touch x\x1b.csv"
    assert "\x1b" not in process(cwd=here).out


@pytest.mark.parametrize("look", [FolderLook(entries=4), FolderLook(files=4)], ids=["names", "files"])
def test_a_folder_of_many_files_is_looked_at_in_part_and_that_is_said(look: FolderLook, here: Path) -> None:
    for number in range(9):
        put(SAMPLES / "d04-long-metrics.csv", here / f"{number}.csv")
    assert len(looked_at(Path(), look).found) == 4
    assert look.is_cut
    assert not looked_at(Path()).is_cut


def test_no_more_is_read_than_the_page_says(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_overview, "looked_at", lambda folder: looked_at(folder, FolderLook(entries=0)))
    put(SAMPLES / "d04-long-metrics.csv", here / "report.csv")
    assert "There is more: only some 1,000 names and 300 files were looked at." in said()


def test_a_folder_that_may_not_be_read_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "closed").mkdir()

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    scandir = os.scandir
    monkeypatch.setattr(
        "os.scandir",
        lambda folder: refuse(folder) if Path(folder).name == "closed" else scandir(folder),
    )
    assert "Could not be read: closed. Check the permissions." in said()


def test_whole_files_are_not_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big = here / "big.csv"
    with big.open("wb") as file:
        file.write((SAMPLES / "d04-long-metrics.csv").read_bytes())
        file.truncate(1 << 40)
    assert [one.kind for one in looked_at(Path()).found] == ["ncu"]


def test_nothing_heavy_is_imported(here: Path) -> None:
    put(SAMPLES / "d01-wide-raw.csv", here / "report.csv")
    put(RELEASED / "report.parquet", here / "report.parquet")
    assert loaded_by() & {"pyarrow.parquet", "pandas", "matplotlib", "rich", "torch", "sqlite3"} == set()
