"""Measuring a machine in a process of its own: what it found, or its own words for why it found nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.bench import machine_measurement
from ncu_launch.errors import NcuBenchError


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for the process: what it writes, and how it ends; `commands` are those that were run."""
    wanted = SimpleNamespace(result=None, exit_code=0, interrupted=False, commands=[])

    def run(command: list[str], log: Path, **options: Any) -> SimpleNamespace:
        wanted.commands.append(command)
        log.write_text("", "utf-8")
        if wanted.result is not None:
            Path(command[-1]).write_text(json.dumps(wanted.result), "utf-8")
        return wanted

    monkeypatch.setattr(machine_measurement, "run", run)
    return wanted


def test_gives_what_the_process_wrote_and_leaves_no_file(process: SimpleNamespace) -> None:
    process.result = {"device": "cpu"}
    assert machine_measurement.measured(0.1, "cpu") == {"device": "cpu"}
    assert process.commands[0][-3:-1] == ["0.1", "cpu"]
    assert not Path(process.commands[0][-1]).exists()


@pytest.mark.parametrize(("result", "exit_code"), [(None, 0), ({"device": "cpu"}, 1)], ids=["no result", "failed"])
def test_a_process_that_fails_without_words_is_told_by_its_exit_code(
    process: SimpleNamespace, result: Any, exit_code: int
) -> None:
    process.result, process.exit_code = result, exit_code
    with pytest.raises(NcuBenchError, match=f"It was exit code {exit_code}."):
        machine_measurement.measured(0.1, "cpu")


def test_ctrl_c_in_the_process_is_ctrl_c_here(process: SimpleNamespace) -> None:
    process.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        machine_measurement.measured(0.1, "cpu")
