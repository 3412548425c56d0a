"""Measure a machine in a child process: its result, or its error."""

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
    """A fake child process: the file it writes and how it ends; `commands` records the commands run."""
    wanted = SimpleNamespace(result=None, exit_code=0, interrupted=False, timed_out=False, commands=[])

    def run(command: list[str], log: Path, **options: Any) -> SimpleNamespace:
        wanted.commands.append(command)
        log.write_text("", "utf-8")
        if wanted.result is not None:
            Path(command[-1]).write_text(json.dumps(wanted.result), "utf-8")
        return wanted

    monkeypatch.setattr(machine_measurement, "run", run)
    return wanted


def test_returns_the_result_of_the_process_and_leaves_no_file(process: SimpleNamespace) -> None:
    process.result = {"device": "cpu"}
    assert machine_measurement.measured(0.1, "cpu") == {"device": "cpu"}
    assert process.commands[0][-3:-1] == ["0.1", "cpu"]
    assert not Path(process.commands[0][-1]).exists()


@pytest.mark.parametrize(("result", "exit_code"), [(None, 0), ({"device": "cpu"}, 1)], ids=["no result", "failed"])
def test_the_error_for_a_process_without_a_message_gives_its_exit_code(
    process: SimpleNamespace, result: Any, exit_code: int
) -> None:
    process.result, process.exit_code = result, exit_code
    with pytest.raises(NcuBenchError, match=f"It was exit code {exit_code}."):
        machine_measurement.measured(0.1, "cpu")


def test_ctrl_c_in_the_process_raises_keyboard_interrupt(process: SimpleNamespace) -> None:
    process.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        machine_measurement.measured(0.1, "cpu")
