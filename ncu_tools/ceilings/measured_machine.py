"""The machine file (TOML text) of measured rates.

DRAM is the best of copy, triad and read over arrays larger than any cache, L2 the best over arrays that fill at most
half of it. Compute peaks are products of square matrices, or on a CPU convolutions with as many operations, by the
fastest operator. The burst rate is the ceiling; the note has the sustained rate. Implausible rates are left out, with a
note.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.workload.cpu_load import DISTURBS

from ncu_tools.ceilings.ceilings import MEASURED_QUICKLY, rate_unit
from ncu_tools.ceilings.machine_files import is_plausible, machines_with, own_folder, problems
from ncu_tools.numbers.number_format import counted, percent, scaled

CPU_UNITS = {"fp64": "fp64", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}
GPU_UNITS = {
    "fp64": "fp64", "fp32": "fp32", "tf32": "tensor_tf32", "fp16": "tensor_fp16", "bf16": "tensor_bf16",
    "int8": "tensor_int8",
}  # fmt: skip
ARRAYS = {"copy": 2, "triad": 3, "read": 1}
"""The number of arrays that a measured operation touches."""
BEYOND_CACHE = 4
HELD = 0.5
"""The share of a cache that arrays may fill; above it, some of their pages may conflict and miss."""

Sample = dict[str, Any]


def machine_id(found: dict[str, Any]) -> str:
    """The id of the machine's file: name and threads in letters, digits and dashes, ending in -measured."""
    threads = f"-{found['threads']}-threads" if found["threads"] else ""
    name = re.sub(r"[^a-z0-9]+", "-", found["device_name"].lower()).strip("-")
    return f"{name or found['device']}{threads}-measured"


def bandwidths(found: dict[str, Any]) -> dict[str, Sample]:
    """The best sample of each distinguishable memory level: `dram`, and `l2` if its size is known."""
    samples: list[Sample] = found["memory"]
    caches: dict[str, int] = found["caches"]
    if not samples:
        return {}
    beyond = BEYOND_CACHE * max(caches.values(), default=0)
    largest = max(sample["size"] for sample in samples)
    levels = {"dram": [sample for sample in samples if sample["size"] >= min(beyond, largest)]}
    if "l2" in caches:
        held = [sample for sample in samples if ARRAYS[sample["what"]] * sample["size"] <= HELD * caches["l2"]]
        levels["l2"] = [sample for sample in held if ARRAYS[sample["what"]] * sample["size"] > caches.get("l1", 0)]
    return {level: max(fitting, key=lambda one: one["burst"]) for level, fitting in levels.items() if fitting}


def peaks(found: dict[str, Any]) -> dict[str, Sample]:
    """The fastest matrix product of each unit. An int8 product on a CPU has no unit of its own."""
    units = GPU_UNITS if found["device"] == "cuda" else CPU_UNITS
    slowest_first: list[Sample] = sorted(found["products"], key=lambda sample: sample["burst"])
    fastest = {sample["what"]: sample for sample in slowest_first}
    return {unit: fastest[what] for what, unit in units.items() if what in fastest}


def unit_of_product(what: str) -> str:
    """The unit whose rate a product of a data type measures, as in `GPU_UNITS`."""
    return GPU_UNITS.get(what, what)


def keep_measured(found: dict[str, Any], target: Path | None = None, *, quickly: bool = False) -> Path:
    """Write the machine file of a measurement, whole or not at all; returns its path.

    By default it is in the user's folder, named by device and threads, where it replaces an earlier one. Raises
    `NcuBenchError` if the measurement is implausible, or if the file cannot be written.
    """
    from ncu_launch.files.atomic_files import write_bytes_atomically

    text = machine_text(found, f"{datetime.now(timezone.utc):%Y-%m-%d}", quickly=quickly)
    wrong = problems(text)
    if wrong:
        raise NcuBenchError(f"What was measured is no plausible machine: {wrong[0]}.", advice="Measure for longer.")
    if target is None:
        target = own_folder() / f"{machine_id(found)}.toml"
        target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(target, text.encode())
    machines_with.cache_clear()
    return target


def machine_text(found: dict[str, Any], date: str, *, quickly: bool = False) -> str:
    """The machine file (TOML) of the results measured on `date`."""
    how, by, then = "measured", "ncu-bench machines measure", ""
    if quickly:
        how, by, then = (
            MEASURED_QUICKLY,
            "ncu-bench profile",
            "\n# ncu-bench machines measure takes longer and replaces it.",
        )
    threads = f", {counted(found['threads'], 'thread', 'threads')}" if found["threads"] else ""
    clocks = f", {', '.join(found['clocks'])}" if found["clocks"] else ""
    name = found["device_name"]
    load = found.get("other_load") or 0.0
    beside = f", while other programs took {percent(load)} of the CPU" if load >= DISTURBS else ""
    source = f"{how} {date}, PyTorch {found['versions']['torch']}{threads}{clocks}{beside}"
    lines = [
        f"# Measured by {by}: what PyTorch's operators reach, not what a data sheet promises.{then}",
        "schema = 1",
        "measured = true",
        *(["measured_quickly = true"] if quickly else []),
        f"name = {_quoted(f'{name} ({how}{threads})')}",
        f'kind = "{"gpu" if found["device"] == "cuda" else "cpu"}"',
        f"vendor = {_quoted(name.split()[0] if name else 'unknown')}",
        f"device_names = [{_quoted(name)}]",
        *([f"threads = {found['threads']}"] if found["threads"] else []),
        f"source = {_quoted(source)}",
    ]
    for unit, sample in _kept(peaks(found)).items():
        product = f"{sample['what']} product of side {sample['size']}"
        lines += _entry("peak", "unit", unit, sample, product)
        lines.append(f"source = {_quoted(source + ', ' + sample['by'])}")
    for level, sample in _kept(bandwidths(found)).items():
        arrays = f"{sample['what']} of arrays of {scaled(sample['size'], 'B')}"
        lines += _entry("bandwidth", "level", level, sample, arrays)
    return "\n".join(lines) + "\n"


def left_out(found: dict[str, Any]) -> list[str]:
    """A note for each measured rate that is not in the file because it is implausible."""
    rates = [(unit, sample, rate_unit(unit)) for unit, sample in peaks(found).items()]
    rates += [(level, sample, "B/s") for level, sample in bandwidths(found).items()]
    return [
        f"{name} reached {scaled(sample['burst'], unit)}, which is no plausible ceiling: it is not in the machine file"
        for name, sample, unit in rates
        if not is_plausible(sample["burst"])
    ]


def _kept(samples: dict[str, Sample]) -> dict[str, Sample]:
    return {name: sample for name, sample in samples.items() if is_plausible(sample["burst"])}


def _entry(kind: str, key: str, name: str, sample: Sample, how: str) -> list[str]:
    note = f"{how}; sustained {sample['sustained'] / sample['burst']:.1%} of it, spread {sample['spread']:.1%}"
    return ["", f"[[{kind}]]", f'{key} = "{name}"', f"value = {sample['burst']:.6g}", f"note = {_quoted(note)}"]


def _quoted(text: str) -> str:
    """A TOML string: no control characters, quotes and backslashes escaped."""
    clean = "".join(letter for letter in text if letter.isprintable())
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'
