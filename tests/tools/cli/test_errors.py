"""Errors passed between processes, and tool output that is not text."""

from __future__ import annotations

import os
import pickle
import stat
import threading
from pathlib import Path
from typing import Any

import click
import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage, error_in_line
from ncu_launch.files.atomic_files import replacing, temporary_folder
from ncu_launch.files.manifest import DamagedManifest
from ncu_launch.profilers.installed_tools import ask
from ncu_launch.profilers.tool_failures import ToolFailed, failures
from ncu_parsers.datasets.dask_engine import GivenUp
from ncu_parsers.launches.nsys.nsys_sqlite import NoGpuWork
from ncu_parsers.parquet.footer import DamagedFooter
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.memory import TooBig, limit
from ncu_parsers.sources.sources import Source

from ncu_tools.cli import COMMANDS, cli, run
from ncu_tools.cli.program_options import PROGRAM_OPTIONS
from ncu_tools.compare.compare_kernels import NotComparable
from tests.conftest import SAMPLES

PARTS = ("It broke.", "It was old.", "Buy another.")


KINDS = (NcuBenchError, WrongUsage, NotAReport, TooBig, DamagedManifest, NoGpuWork, GivenUp, NotComparable)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling_to_another_process(kind: type[NcuBenchError]) -> None:
    error = kind(*PARTS)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(again) is kind
    assert (again.what, again.cause, again.advice, again.exit_code) == (*PARTS, kind.exit_code)
    assert str(again) == "It broke. It was old. Buy another."


def test_a_tool_failure_survives_pickling_to_another_process() -> None:
    error = ToolFailed("report.csv", failures()[0], "==ERROR==")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), again.failure, again.paragraph) == (ToolFailed, failures()[0], error.paragraph)


def test_every_error_class_is_tested_above() -> None:
    def below(kind: type[NcuBenchError]) -> set[type[NcuBenchError]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    tested = {*KINDS, ToolFailed}
    ours = {kind for kind in below(NcuBenchError) if kind.__module__.startswith(("ncu_", "launch", "parsers"))}
    assert ours <= tested
    assert not issubclass(DamagedFooter, NcuBenchError)


def test_an_error_reads_back_from_its_printed_paragraph() -> None:
    error = error_in_line(WrongUsage(*PARTS).serialized)
    assert error is not None
    assert (error.what, error.cause, error.advice, error.exit_code) == (*PARTS, 2)
    assert error_in_line("a line of the program") is None


def test_tool_output_may_contain_bytes_that_are_not_text(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(b"#!/bin/sh\nprintf 'caf\\351 2024.1'\nread line && echo $line\n")
    tool.chmod(0o755)
    assert ask([str(tool)]) == (1, "caf\ufffd 2024.1")


def test_an_error_of_the_reading_process_is_not_blamed_on_the_report(tmp_path: Path) -> None:
    report = tmp_path / "report.csv"
    report.write_text("x")
    with pytest.raises(OSError, match="No space left"), Source(str(report)).open():
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("is_folder", [False, True])
def test_ctrl_c_as_soon_as_something_temporary_is_there_leaves_nothing(
    is_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = (Path, "mkdir") if is_folder else (os, "close")
    makes = getattr(owner, name)

    def stops(*arguments: Any, **options: Any) -> None:
        makes(*arguments, **options)
        monkeypatch.setattr(owner, name, makes)
        raise KeyboardInterrupt

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(owner, name, stops)
    with pytest.raises(KeyboardInterrupt), temporary_folder() if is_folder else replacing(tmp_path / "page.html"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_files_written_by_many_threads_follow_the_umask_and_leave_it_unchanged(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:

        def write(name: str) -> None:
            for _ in range(50):
                with replacing(tmp_path / name) as temporary:
                    temporary.write_text(name)

        threads = [threading.Thread(target=write, args=(str(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        after = os.umask(before)
    assert after == 0o027
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o640}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0", "1", "2", "3"]


def test_a_broken_pipe_to_another_process_is_an_error_and_no_success(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("ncu_tools.ceilings.machine_files.find_machine", broken)
    assert run(["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--machine", "t4"]) == 1
    assert "A process that this one works with ended early." in capfd.readouterr().err


class TestOptionsOfTheProgram:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_are_taken_after_every_command(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run([command, "--memory-limit", "4GB", "--debug", "--help"]) == 0
        printed = capsys.readouterr().out
        assert "--debug" in printed
        assert "--memory-limit SIZE" in printed

    def test_stand_once_on_a_command_however_often_it_is_asked_for(self) -> None:
        context = click.Context(cli)
        for _ in range(2):
            command = cli.get_command(context, "parse")
            assert command is not None
            assert command.params[-len(PROGRAM_OPTIONS) :] == list(PROGRAM_OPTIONS)
            assert all(command.params.count(option) == 1 for option in PROGRAM_OPTIONS)

    def test_debug_shows_where_an_error_came_from_before_and_after_the_command(self, tmp_path: Path) -> None:
        missing = str(tmp_path / "missing")
        for words in (
            ["--debug", "hotspots", missing],
            ["hotspots", missing, "--debug"],
            ["hotspots", "--debug", missing],
        ):
            with pytest.raises(NcuBenchError):
                run(words)
        assert run(["hotspots", missing]) == 1

    def test_the_limit_behind_a_command_holds_for_it(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        raw, limits = str(SAMPLES / "d01-wide-raw.csv"), []

        def longest_line() -> int:
            limits.append(limit())
            return 1_000_000

        monkeypatch.setattr("ncu_parsers.sources.memory.longest_line", longest_line)
        assert run(["hotspots", raw, "--memory-limit", "512MB"]) == 0
        assert set(limits) == {512e6}
        assert limit() == 2e9
        assert run(["--memory-limit", "1GB", "hotspots", raw, "--memory-limit", "3"]) == 2
        assert "3" in capsys.readouterr().err

    def test_debug_of_a_profiled_program_is_not_one_of_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        profile = ["profile", "--ncu", str(tmp_path / "missing"), "--tool", "ncu", "--", "program", "--debug"]
        monkeypatch.setattr("sys.argv", ["ncu-bench", *profile])
        assert run(profile) == 1
        assert "Error: " in capsys.readouterr().err
