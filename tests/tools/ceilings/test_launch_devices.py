"""Which device each launch ran on."""

from __future__ import annotations

from ncu_parsers.report_data.report import Launch

from ncu_tools.ceilings.launch_devices import Device, devices_of, differs_by_threads, measured_of
from tests.support.launches import table


def on(name: str | None, capability: str | None = None) -> Launch:
    attributes = {"Device Name": name} if name is not None else {}
    return Launch("k", compute_capability=capability, attributes=attributes)


def test_launches_are_grouped_by_device_in_the_order_of_the_first_launch() -> None:
    found = devices_of(table(on("T4", "7.5"), on("A100", "8.0"), on("T4", "7.5"), on(None)))
    assert {device: rows.tolist() for device, rows in found.items()} == {
        Device("T4", "7.5", None): [0, 2],
        Device("A100", "8.0", None): [1],
        Device(None, None, None): [3],
    }
    assert next(iter(found)).name == "T4"


def test_a_cpu_with_two_numbers_of_threads_is_two_devices() -> None:
    two, eight, gpu = Device("cpu", None, 2), Device("cpu", None, 8), Device("T4", "7.5", None)
    assert differs_by_threads(two, [two, eight, gpu])
    assert not differs_by_threads(gpu, [two, eight, gpu])


def test_a_device_without_a_measured_file_has_no_measured_machine() -> None:
    assert measured_of(Device("a device that does not exist", None, None)) is None
