"""The devices of launches, and the measured machine files of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.operator_columns import THREADS

from ncu_tools.ceilings.machine_files import (
    Machine,
    Rate,
    machine_of_device,
    machines,
    machines_of_capability,
    measured_machines,
)
from ncu_tools.numbers.number_format import counted

SM_COUNT, LAUNCHED_SM_COUNT = "device__attribute_multiprocessor_count", "launch__sm_count"
MOST_NAMED = 6
"""Most other boards that a note names."""

Rows = npt.NDArray[np.int64]
"""Row indices of launches in a table."""


class Device(NamedTuple):
    """The device of launches as the report names it; `threads` is the number of CPU threads. None where unknown."""

    name: str | None
    capability: str | None
    threads: int | None


def differs_by_threads(device: Device, devices: Iterable[Device]) -> bool:
    """True if the ceilings of this device may depend on the number of threads."""
    if sum(other[:2] == device[:2] for other in devices) > 1:
        return True
    return device.threads is not None and len({machine.threads for machine in measured_machines(device.name)}) > 1


def devices_of(table: pa.Table) -> dict[Device, Rows]:
    """Row indices of the launches of each device, in the order of first launches."""
    names, name_texts = tables.codes(table, "device_name")
    capabilities, capability_texts = tables.codes(table, "compute_capability")
    threads, thread_of = _threads(table)
    each = (names.astype(np.int64) * len(capability_texts) + capabilities) * len(threads) + thread_of
    launches = {device: np.flatnonzero(each == device) for device in np.flatnonzero(np.bincount(each)).tolist()}
    result = {}
    for device, at in sorted(launches.items(), key=lambda item: int(item[1][0])):
        rest, thread = divmod(device, len(threads))
        name, capability = divmod(rest, len(capability_texts))
        result[Device(name_texts[name], capability_texts[capability], threads[thread])] = at
    return result


def names_of_devices(table: pa.Table) -> tuple[str, ...]:
    """The devices of launches by name, or by compute capability if the report names none; () if it has neither."""
    for column, before in (("device_name", ""), ("compute_capability", "compute capability ")):
        if column in table.column_names and len(table):
            codes, texts = tables.codes(table, column)
            found = [texts[code] for code in np.flatnonzero(np.bincount(codes, minlength=len(texts))).tolist()]
            if any(found):
                return tuple(f"{before}{text}" for text in found if text)
    return ()


def device_titles(table: pa.Table) -> tuple[Rows, list[str | None]]:
    """The index of each launch's device in the titles, which may repeat: its name, else its compute capability.

    The title of an unknown device is None.
    """
    names, name_texts = tables.codes(table, "device_name")
    capabilities, capability_texts = tables.codes(table, "compute_capability")
    titles = [
        name or (f"compute capability {capability}" if capability else None)
        for name in name_texts
        for capability in capability_texts
    ]
    return names.astype(np.int64) * len(capability_texts) + capabilities, titles


def _threads(table: pa.Table) -> tuple[list[int | None], Rows]:
    """The distinct numbers of threads, and the index of each launch's number."""
    if THREADS not in table.column_names:
        return [None], np.zeros(len(table), np.int64)
    numbers, codes = np.unique(tables.floats(table, THREADS), return_inverse=True)
    return [int(number) if np.isfinite(number) else None for number in numbers], codes.astype(np.int64)


def measured_of(device: Device) -> Machine | None:
    """The measured machine of a device with the same number of threads; None if that is ambiguous or missing."""
    found = measured_machines(device.name)
    if device.threads is None and all(machine.threads is not None for machine in found):
        return found[0] if len({machine.threads for machine in found}) == 1 else None
    fitting = (machine for threads in (device.threads, None) for machine in found if machine.threads == threads)
    return next(fitting, None)


def with_other_threads(device: Device) -> str:
    """Message part: the measured thread counts of a device, if none matches the run; "" if never measured."""
    measured = sorted({machine.threads for machine in measured_machines(device.name) if machine.threads})
    if not measured:
        return ""
    own = f"the run had {device.threads}" if device.threads else "the run does not say its own"
    threads = f"{' and '.join(map(str, measured))} {'thread' if measured == [1] else 'threads'}"
    return f" (it was measured with {threads}, and {own})"


class Recorded(NamedTuple):
    """How launches of one device were recorded."""

    by_ncu: bool
    on_cpu: bool
    """Operators in a PyTorch trace that ran on a CPU: launches on a GPU have a device number."""


def recorded(table: pa.Table, at: Rows) -> Recorded:
    """How the launches in rows `at` were recorded; by ncu if the table has no source."""
    if "source" not in table.column_names:
        return Recorded(by_ncu=True, on_cpu=False)
    codes, names = tables.codes(table, "source")
    sources = {names[code] for code in np.flatnonzero(np.bincount(codes[at])).tolist()}
    without_device = np.isnan(tables.floats(table, "device_id")[at]).all()
    by_ncu = any(name is None or name.startswith("ncu") for name in sources)
    return Recorded(by_ncu, sources == {"kineto"} and bool(without_device))


def of_a_cpu(table: pa.Table) -> bool:
    """True for operators of a CPU, by PyTorch's profiler or the operator collector, which give a GPU's its number."""
    by_pytorch = set(tables.words(table, "source")) <= {"kineto", "operators"}
    return len(table) > 0 and by_pytorch and bool(np.isnan(tables.floats(table, "device_id")).all())


def measured_cpu() -> Machine | None:
    """The only CPU that was measured here; None if there are several (other numbers of threads) or none."""
    found = [machine for machine in machines().values() if machine.measured and machine.kind == "cpu"]
    return found[0] if len(found) == 1 else None


def sm_count(table: pa.Table, at: Rows, metrics: Sequence[str] = (SM_COUNT, LAUNCHED_SM_COUNT)) -> float | None:
    """The SMs of the device of the launches `at`; None if the report has no number, or several."""
    for metric in metrics:
        counts = tables.floats(table, metric)[at]
        known = np.unique(counts[counts > 0])
        if known.size:
            return float(known[0]) if known.size == 1 else None
    return None


def board_of(device: Device, table: pa.Table, at: Rows) -> tuple[Machine | None, str]:
    """The machine file of the device that the report names, if its number of SMs matches the report; and a note on it.

    The note is for files that list another board with the same name.
    """
    found = machine_of_device(device.name)
    if found is None:
        return None, ""
    said = sm_count(table, at, [SM_COUNT])
    if said is not None and found.sm_count is not None and said != found.sm_count:
        return None, (
            f"{device.name} has {said:g} SMs by the report, and the board of machine file {found.id} {found.sm_count}: "
            "it is another board of the same name"
        )
    if not found.same_name:
        return found, ""
    return found, f"{device.name}: ceilings are those of {found.id}; {found.same_name}"


def family_of(capability: str | None, sms: float | None) -> list[Machine]:
    """The machines that represent a compute capability, except those whose number of SMs differs from the report."""
    stand = [machine for machine in machines_of_capability(capability) if machine.stands_for_compute_capability]
    return [machine for machine in stand if sms is None or machine.sm_count in (None, sms)]


def agreed(family: Sequence[Machine]) -> dict[str, Rate]:
    """The rates on which all machines of a family agree within 1 %."""
    return {
        unit: rate
        for unit, rate in (family[0].rates.items() if family else ())
        if all(unit in other.rates and abs(other.rates[unit].value / rate.value - 1) < 0.01 for other in family)
    }


def ids(family: Sequence[Machine]) -> str:
    """The ids of machines, as text."""
    return ", ".join(machine.id for machine in family)


def known_boards(capability: str | None, sms: float | None = None, but: Sequence[Machine] = ()) -> str:
    """The ids of the machines of a compute capability and number of SMs, as text; only the first ones if many."""
    found = [machine for machine in machines_of_capability(capability) if capability and machine not in but]
    found = [machine for machine in found if sms is None or machine.sm_count in (None, sms)]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ids(found[:MOST_NAMED]) + more


def note_on_cpu_ceilings(machine: Machine) -> str:
    """The note on a CPU trace that uses the ceilings of the CPU measured here."""
    threads = f" with {counted(machine.threads, 'thread', 'threads')}" if machine.threads else ""
    found = f"the trace names no CPU: ceilings are those measured on this machine{threads} ({machine.id})"
    return f"{found}; say --machine NAME if it was recorded elsewhere"
