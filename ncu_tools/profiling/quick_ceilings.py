"""Ceilings for an unknown machine: measured in seconds after its first profile, and kept for later ones.

Only operators timed on that machine need them: reports of ncu have ceilings of their own, and most GPUs a data sheet.
It is measured after the run, in a separate process, so that it does not affect times of the profile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.bench.machine_measurement import QUICK_LIMIT_S, measured_quickly
from ncu_launch.errors import NcuBenchError
from ncu_launch.workload.cpu_load import CpuLoad, cpu_count
from ncu_parsers.schema import tables

from ncu_tools.ceilings.ceilings import MEASURED_QUICKLY, unit_title
from ncu_tools.ceilings.launch_devices import Device, devices_of, measured_of
from ncu_tools.ceilings.machine_files import machine_of_device
from ncu_tools.ceilings.measured_machine import bandwidths, keep_measured, peaks
from ncu_tools.numbers.number_format import counted, percent, scaled
from ncu_tools.profiling.collected_profile import CollectedProfile
from ncu_tools.profiling.listener import Listener

SETTING = "NCU_BENCH_NO_MEASURE"
"""With this environment variable set, nothing is measured, as with --no-measure for one profile."""
LEFT = 0.8
"""The part of the needed CPUs that other programs must leave free: no ceiling is better than a wrong one."""
LOOKED_S = 0.3
"""How long the load is observed before a measurement."""
LEAST_SHARE, TOLERATED = 0.05, 1.05
"""The share of a run's time above which an operator tests a measured peak, and the tolerated excess."""
PRODUCTS = ("fp32", "bf16", "tf32", "fp16", "fp64")
LATER = "ncu-bench machines measure"
AGAIN = f"The next profile tries it again; --no-measure, or {SETTING}=1 for all profiles, leaves it out."
"""Note on a failed measurement, since nothing is kept of it."""


def measure_unknown_devices(collected: CollectedProfile, listener: Listener) -> CollectedProfile:
    """The profile after measuring its devices without ceilings; its notes report the outcome.

    A failed or interrupted measurement leaves no file. Raises `KeyboardInterrupt` if interrupted.
    """
    if os.environ.get(SETTING) or collected.table is None or collected.failure is not None:
        return collected
    if collected.manifest.source != "operators":
        return collected
    unknown = [device for device in devices_of(collected.table) if _is_unknown(device)]
    notes = [_measured(device, _types(collected), collected, listener) for device in unknown]
    return replace(collected, notes=(*notes, *collected.notes))


def _is_unknown(device: Device) -> bool:
    return device.name is not None and machine_of_device(device.name) is None and measured_of(device) is None


def _types(collected: CollectedProfile) -> list[str]:
    """The types of products to measure, the run's own first: there may be no time for all."""
    own = collected.manifest.workload.get("dtype")
    return list(dict.fromkeys(name for name in (own, *PRODUCTS) if name in PRODUCTS))


def _measured(device: Device, types: Sequence[str], collected: CollectedProfile, listener: Listener) -> str:
    """Measure a device and keep its file; returns the note on it."""
    load = CpuLoad()
    time.sleep(LOOKED_S)
    others = load.others()
    if is_starved(others, device.threads):
        return _too_busy(others, "its ceilings were not measured")
    threads = f" with {counted(device.threads, 'thread', 'threads')}" if device.threads else ""
    began = time.monotonic()
    try:
        listener.message(
            f"No ceilings are known for {device.name}{threads}: measuring them for at most {QUICK_LIMIT_S:g} s, "
            "to keep them for later runs (--no-measure leaves it out)."
        )
        with listener.step("measuring what this machine reaches") as heard:
            kind = "cpu" if device.threads is not None else "cuda"
            found = measured_quickly(kind, device.threads, types, on_line=heard)
        others = found.get("other_load")
        if is_starved(others, device.threads):
            return _too_busy(others, "the measured rates are no ceilings and were not kept")
        beaten = beaten_by_run(found, collected.table) if collected.table is not None else ""
        if beaten:
            return f"{beaten}, so the measured rates are no ceilings and were not kept: {LATER} measures again"
        target = keep_measured(found, quickly=True)
    except KeyboardInterrupt:
        listener.message(f"The run is in {collected.folder}; its ceilings were not measured.")
        raise
    except (NcuBenchError, OSError) as error:
        why = error.paragraph if isinstance(error, NcuBenchError) else f"{error}."
        return f"the ceilings of {device.name} were not measured: {why} {AGAIN}"
    seconds = time.monotonic() - began
    return f"{MEASURED_QUICKLY} in {seconds:.1f} s: {_rates(found)}; kept in {target}, which {LATER} refines"


def beaten_by_run(found: dict[str, Any], launches: pa.Table) -> str:
    """Rates of operators in the run above a measured peak, in words; "" if there are none.

    A machine is slower while its host is busy elsewhere, which the load of its own CPUs does not show. Operators that
    take less than `LEAST_SHARE` of the time do not count: short times are not exact enough.
    """
    codes, names = tables.codes(launches, "kernel_name")

    def of_operators(column: str) -> tables.Floats:
        values = np.nan_to_num(tables.floats(launches, column))
        return np.bincount(codes, weights=values, minlength=len(names)).astype(np.float64)

    times = of_operators("duration_ns")
    for unit, peak in peaks(found).items():
        if f"flops_{unit}" not in launches.column_names:
            continue
        rates = 1e9 * of_operators(f"flops_{unit}") / np.maximum(times, 1.0)
        rates[times < LEAST_SHARE * times.sum()] = 0.0
        fastest, burst = int(rates.argmax()), float(peak["burst"])
        if rates[fastest] > TOLERATED * burst:
            reached, measured = scaled(float(rates[fastest]), "FLOP/s"), scaled(burst, "FLOP/s")
            return f"{names[fastest]} of this run reached {reached}, and {unit_title(unit)} products {measured}"
    return ""


def is_starved(others: float | None, threads: int | None) -> bool:
    """True if other programs, which take this share of the CPU, leave too little of it for this many threads.

    False if the share is unknown, and for a GPU, which has no `threads`.
    """
    if others is None or threads is None:
        return False
    return 1 - others < LEFT * min(threads / cpu_count(), 1.0)


def _too_busy(others: float | None, what: str) -> str:
    return (
        f"other programs take {percent(others or 0.0)} of the CPU, so that {what}: {LATER} does it once they are done"
    )


def _rates(found: dict[str, Any]) -> str:
    """The measured rates in words, the highest peak last."""
    levels = [f"{unit_title(level)} {scaled(one['burst'], 'B/s')}" for level, one in bandwidths(found).items()]
    units = sorted(peaks(found).items(), key=lambda item: float(item[1]["burst"]))
    return ", ".join([*levels, *(f"{unit_title(unit)} {scaled(one['burst'], 'FLOP/s')}" for unit, one in units)])
