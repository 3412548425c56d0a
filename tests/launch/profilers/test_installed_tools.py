"""What is asked of installed profilers, with stand-ins for those that hang or do not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_launch.profilers.installed_tools import Tool, export_timeline


def stand_in(folder: Path, script: str) -> Tool:
    program = folder / "nsys"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)
    return Tool("nsys", str(program), (2025, 1), "2025.1")


def test_nsys_gets_the_report_as_an_absolute_path_so_that_its_name_is_no_option(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert export_timeline(stand_in(tmp_path, 'printf "%s|" "$@"\n'), tmp_path / "-x", tmp_path / "out.sqlite", log)
    assert f"{tmp_path}/-x" in log.read_text()
    assert f"{tmp_path}/out.sqlite" in log.read_text()


def test_what_a_failed_export_has_written_is_no_export(tmp_path: Path) -> None:
    output = tmp_path / "out.sqlite"
    failing = stand_in(tmp_path, 'echo half > "$7"; exit 1\n')
    assert export_timeline(failing, tmp_path / "x", output, tmp_path / "log")
    assert not output.exists()


def test_an_nsys_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_launch.profilers.installed_tools.EXPORT_TIMEOUT_S", 0.2)
    asleep = stand_in(tmp_path, "sleep 60\n")
    assert not export_timeline(asleep, tmp_path / "x", tmp_path / "out.sqlite", tmp_path / "log")


def test_an_nsys_that_does_not_start_exports_nothing(tmp_path: Path) -> None:
    nowhere = Tool("nsys", str(tmp_path / "nowhere"), (2025, 1), "2025.1")
    assert not export_timeline(nowhere, tmp_path / "x", tmp_path / "out.sqlite", tmp_path / "log")
