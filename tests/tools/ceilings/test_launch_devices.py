"""Which device each launch ran on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.report_data.report import Launch

from ncu_tools.ceilings.launch_devices import Device, Recorded, devices_of, differs_by_threads, measured_of, recorded
from tests.support.launches import metric, table
from tests.tools.ceilings.test_ceiling_sources import keep


def on(name: str | None, capability: str | None = None, threads: int | None = None) -> Launch:
    attributes = {"Device Name": name} if name is not None else {}
    metrics = {"threads": metric(float(threads))} if threads is not None else {}
    return Launch("k", metrics=metrics, compute_capability=capability, attributes=attributes)


def test_launches_are_grouped_by_device_in_the_order_of_the_first_launch() -> None:
    found = devices_of(table(on("T4", "7.5"), on("A100", "8.0"), on("T4", "7.5"), on(None)))
    assert {device: rows.tolist() for device, rows in found.items()} == {
        Device("T4", "7.5", None): [0, 2],
        Device("A100", "8.0", None): [1],
        Device(None, None, None): [3],
    }
    assert next(iter(found)).name == "T4"


def test_launches_on_several_devices_are_grouped_by_their_threads_too() -> None:
    found = devices_of(table(on("A", None, 2), on("B", "7.5"), on("A", None, 8), on("B", "8.0"), on("A", None, 2)))
    assert {device: rows.tolist() for device, rows in found.items()} == {
        Device("A", None, 2): [0, 4],
        Device("B", "7.5", None): [1],
        Device("A", None, 8): [2],
        Device("B", "8.0", None): [3],
    }


def test_a_cpu_with_two_numbers_of_threads_is_two_devices() -> None:
    two, eight, gpu = Device("cpu", None, 2), Device("cpu", None, 8), Device("T4", "7.5", None)
    assert differs_by_threads(two, [two, eight, gpu])
    assert not differs_by_threads(gpu, [two, eight, gpu])


def test_a_device_without_a_measured_file_has_no_measured_machine() -> None:
    assert measured_of(Device("a device that does not exist", None, None)) is None


class TestAMeasuredCpu:
    def measured(self, *threads: int | None) -> None:
        for number in threads:
            keep(f"cpu-{number}", device="A CPU", measured=True, more=f"threads = {number}" if number else "")

    def machine(self, threads: int | None) -> str | None:
        found = measured_of(Device("A CPU", None, threads))
        return found.id if found is not None else None

    def test_is_the_one_with_as_many_threads(self) -> None:
        self.measured(1, 2)
        assert [self.machine(threads) for threads in (1, 2, 4, None)] == ["cpu-1", "cpu-2", None, None]

    def test_is_the_only_one_where_the_run_does_not_say_its_threads(self) -> None:
        self.measured(2)
        assert [self.machine(threads) for threads in (2, None, 4)] == ["cpu-2", "cpu-2", None]

    def test_without_a_number_of_threads_stands_for_runs_of_every_number(self) -> None:
        self.measured(2, None)
        assert [self.machine(threads) for threads in (2, 4, None)] == ["cpu-2", "cpu-None", "cpu-None"]

    def test_with_several_numbers_of_threads_differs_by_them_where_the_run_says_its_own(self) -> None:
        one, unknown = Device("A CPU", None, 2), Device("A CPU", None, None)
        self.measured(2)
        assert not differs_by_threads(one, [one])
        self.measured(1)
        assert differs_by_threads(one, [one])
        assert not differs_by_threads(unknown, [unknown])


@pytest.mark.parametrize(
    ("sources", "devices", "found"),
    [
        (["ncu", "ncu"], [None, None], Recorded(by_ncu=True, on_cpu=False)),
        (["ncu", "nsys"], [0, 0], Recorded(by_ncu=True, on_cpu=False)),
        (["nsys", "kineto"], [None, None], Recorded(by_ncu=False, on_cpu=False)),
        (["kineto", "kineto"], [None, None], Recorded(by_ncu=False, on_cpu=True)),
        (["operators", "operators"], [0, 0], Recorded(by_ncu=False, on_cpu=False)),
        (["kineto", "kineto"], [None, 0], Recorded(by_ncu=False, on_cpu=False)),
    ],
)
def test_launches_of_a_trace_without_a_device_number_ran_on_the_cpu(
    sources: list[str], devices: list[int | None], found: Recorded
) -> None:
    launches = pa.table({"source": sources, "device_id": pa.array(devices, pa.int32())})
    assert recorded(launches, np.arange(2)) == found
    assert recorded(launches.drop_columns(["source"]), np.arange(2)) == Recorded(by_ncu=True, on_cpu=False)
