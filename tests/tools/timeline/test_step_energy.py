"""Energy of steps from power that was sampled while a program ran. Every number here is made up."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
from ncu_launch.files.run_files import POWER, REPORTS
from ncu_launch.profilers.sampling.gpu_sampler import sampling_gpus
from ncu_launch.profilers.sampling.power_readings import PowerReading, read_readings, write_readings

from ncu_tools.timeline.step_energy import energy_between
from tests.support import stand_in_nvml
from tests.support.ran import ran
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed

MS, S = 1_000_000, 1_000_000_000
BEGAN = 1_800_000_000 * S
UUID = "5c9a5380-d76d-414b-3975-82bcaebbab73"


def reading(at_ns: int, watts: float | None, gpu: str = "0", uuid: str | None = f"GPU-{UUID}") -> PowerReading:
    return PowerReading(gpu, uuid, BEGAN + at_ns, watts, None, 1.5e9, None, 60.0)


def test_power_is_integrated_by_trapezoids_between_the_readings_in_a_step() -> None:
    some = [reading(at * S, watts) for at, watts in ((0, 1000), (1, 100), (2, 300), (4, 300), (5, 1000))]
    found = energy_between(some, BEGAN + S // 2, BEGAN + 9 * S // 2)
    assert found is not None
    assert (found.readings, found.sampled_s) == (3, 3)
    assert found.power_w == pytest.approx((200 * 1 + 300 * 2) / 3)
    assert found.energy_j == pytest.approx(found.power_w * 4)
    assert (found.sm_clock_hz, found.temperature_c) == (1.5e9, 60)


@pytest.mark.parametrize("watts", [[100.0], [100.0, None], [None, None, None], []])
def test_fewer_than_two_readings_say_nothing(watts: list[float | None]) -> None:
    some = [reading(at * MS, one) for at, one in enumerate(watts)]
    assert energy_between(some, BEGAN, BEGAN + S) is None


def run_folder(
    folder: Path, *readings: PowerReading, uuid: str | None = UUID, began: int | None = BEGAN, work: bool = True
) -> str:
    """A run of nsys with two steps of 1 s on one GPU, and readings beside it."""
    (folder / REPORTS).mkdir()
    tables = {
        KERNELS: [kernel(at * S, at + 1, end=at * S + S // 2) for at in range(2)] if work else [],
        CALLS: [{**call(at * S, at + 1), "nameId": 2} for at in range(2)],
        RANGES: [pushed(f"train_step {at}", at * S, (at + 1) * S) for at in range(2)],
        "TARGET_INFO_GPU": [{"id": 0, "cuDevice": 0, "name": "NVIDIA H100", **({"uuid": uuid} if uuid else {})}],
    }
    if began is not None:
        tables["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": began}]
    database(folder / REPORTS / "timeline.sqlite", tables, ("triad", "cudaLaunchKernel_v7000"))
    lines = [json.dumps(vars(one)) for one in readings]
    (folder / POWER).write_text("\n".join([*lines, "{damaged"]), "utf-8")
    return str(folder)


def steps(path: str, *options: str) -> list[dict[str, float | None]]:
    told = ran("timeline", path, "--step", "^train_step", "--format", "json", *options)
    assert told.exit_code == 0, told.stderr
    rows: list[dict[str, float | None]] = json.loads(told.stdout)["rows"]
    return rows


TENTHS = [reading(at * 100 * MS + 50 * MS, 100.0 if at < 10 else 400.0) for at in range(20)]


def test_each_step_has_the_energy_of_the_readings_in_its_time(tmp_path: Path) -> None:
    path = run_folder(tmp_path, *TENTHS)
    whole, first, second = steps(path)
    assert first["energy_j"] == pytest.approx(100)
    assert second["energy_j"] == pytest.approx(400)
    assert (second["power_w"], second["readings"], second["temperature_c"]) == (400, 10, 60)
    assert second["sampled_s"] == pytest.approx(0.9)
    assert whole["energy_j"] is not None
    text = ran("timeline", path, "--step", "^train_step", "--part", "steps")
    assert "~energy" in text.stdout
    assert re.search(r" 400 J +400 W ", text.stdout)
    assert "400" in text.stdout
    assert "~ is sampled through NVML, 10 times a second for 1.9 s on 1 GPU" in text.stderr


def test_a_step_with_one_reading_has_none(tmp_path: Path) -> None:
    _, first, second = steps(run_folder(tmp_path, *TENTHS[:11]))
    assert first["energy_j"] == pytest.approx(100)
    assert (second["energy_j"], second["power_w"], second["readings"]) == (None, None, None)


def test_readings_of_another_gpu_are_not_taken(tmp_path: Path) -> None:
    other = [reading(at * 100 * MS, 900.0, gpu="1", uuid="GPU-other") for at in range(20)]
    found = steps(run_folder(tmp_path, *other, *TENTHS))
    assert found[1]["energy_j"] == pytest.approx(100)


def test_without_uuids_the_only_gpu_is_the_one_that_was_read(tmp_path: Path) -> None:
    found = steps(run_folder(tmp_path, *TENTHS, uuid=None))
    assert found[1]["energy_j"] == pytest.approx(100)


def test_without_uuids_none_of_two_gpus_is_guessed(tmp_path: Path) -> None:
    other = [reading(at * 100 * MS, 900.0, gpu="1", uuid="GPU-other") for at in range(20)]
    path = run_folder(tmp_path, *other, *TENTHS, uuid=None)
    assert [row["energy_j"] for row in steps(path)] == [None] * 3
    assert "no GPU has two readings" in ran("timeline", path).stderr


def test_a_recording_that_does_not_say_when_it_began_has_no_energy(tmp_path: Path) -> None:
    path = run_folder(tmp_path, *TENTHS, began=None)
    assert [row["energy_j"] for row in steps(path)] == [None] * 3
    assert "does not say when it began" in ran("timeline", path).stderr


def test_a_recording_without_gpu_work_tells_the_power_of_the_whole_run(tmp_path: Path) -> None:
    told = ran("timeline", run_folder(tmp_path, *TENTHS, work=False))
    assert told.exit_code == 1
    words = "GPU 0 sampled through NVML while the whole program ran: 20 readings over 1.9 s, 400 W by power readings"
    assert f"ranges of the host. {words}, 760 J, SMs at 1500 MHz, at most 60 degrees Celsius. Record" in told.stderr


def test_readings_are_written_with_the_time_of_day_and_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", stand_in_nvml)
    before = time.time_ns()
    with sampling_gpus(["0"]) as samplers:
        time.sleep(0.12)
    write_readings(tmp_path, samplers)
    (found,) = read_readings(tmp_path).values()
    assert len(found) == len(samplers["0"].readings) >= 3
    assert before - MS <= found[0].utc_ns <= found[-1].utc_ns <= time.time_ns() + MS
    assert {(one.gpu, one.uuid, one.power_w) for one in found} == {("0", stand_in_nvml.UUID, 700.0)}


def test_a_folder_without_readings_has_none(tmp_path: Path) -> None:
    assert read_readings(tmp_path) == {}
