"""Fit the expected times that ship with the package: `python -m benchmarks.fit_expected [gemm ...]`, some minutes.

Reads ../shared/measured and writes a file for each kind of operators into ncu_tools/model/expected_time/tables/. The
same data give the same files: starts are drawn with a fixed seed.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from ncu_launch.files.atomic_files import write_bytes_atomically

from benchmarks.measured_fp32 import fp32_products
from benchmarks.measured_models import model_times
from benchmarks.measured_operators import movement_times
from benchmarks.measured_times import FILES, attention_times, gemm_times
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.hardware import family_of
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learning import (
    MeasuredTimes,
    by_kind_and_type,
    entries,
    expected_us,
    fit_corrections,
    fit_numbers,
    spread_of,
    unseen,
)
from ncu_tools.model.expected_time.learnt_times import (
    FAMILIES,
    KIN,
    PHYSICS,
    SHIPPED,
    Learnt,
    LearntEntry,
    Spread,
    shipped,
    written,
)
from ncu_tools.model.expected_time.physics import Floats

AICONFIGURATOR = (
    "derived from the measured operator times of ai-dynamo/aiconfigurator (NVIDIA, Apache-2.0), systems/data of "
    "November 2026: https://github.com/ai-dynamo/aiconfigurator"
)
SOURCES = {
    "movement": "derived from PyTorch traces of AMD-AGI/TraceLens (MIT), tests/traces/h100: "
    "https://github.com/AMD-AGI/TraceLens",
    "model": "derived from huggingface/pytorch-image-models (Apache-2.0), results, and from READMEs of "
    "NVIDIA/DeepLearningExamples: https://github.com/huggingface/pytorch-image-models",
}
"""Sources of the times of a kind of operators, where it is not `AICONFIGURATOR`."""
COMMENT = """Expected times of operators: numbers of the physics (ncu_tools/model/expected_time), corrections in per
cent at the corners of the grid (knots are binary logarithms), and the spread of measured times: from how many us on,
and how many per cent below and above 80 % of them lie. Written by benchmarks/fit_expected.py: do not edit.
Whose data these are derived from, and under which licence, is in NOTICE in this folder."""
READERS: dict[str, Callable[[], list[MeasuredTimes]]] = {
    "gemm": gemm_times, **{kind: partial(attention_times, kind) for kind in FILES},
    "movement": movement_times, "model": model_times,
}  # fmt: skip
FP32 = "gemm_fp32"
OF_FP32 = "FP32 products, learnt from the few of KernelBench (ScalingIntelligence, MIT License). Written by\n"
OF_FP32 += "benchmarks/fit_expected.py: do not edit."
WIDER = {KIN: 1.15, FAMILIES: 1.5, PHYSICS: 1.15}
"""Factor on the interval for GPUs without measured times: so it holds 80 % where it derives from other GPUs alone."""

LeftOut = tuple[str, MeasuredTimes, Floats]
"""The basis of expected times, the measured times, and those expected by a fit that has not seen them."""


def fitted_kind(name: str) -> Learnt:
    """Fit everything for one kind of operators."""
    found: list[LearntEntry] = []
    everything = READERS[name]()
    for (_, dtype), times in by_kind_and_type(everything).items():
        begun = time.monotonic()
        numbers = fit_numbers(times)
        expected = unseen(times, numbers)
        found += entries(times, fit_corrections(times, numbers), expected)
        pairs = zip(expected, times, strict=True)
        error = 100 * np.abs(np.concatenate([mine / one.measured.time_us for mine, one in pairs]) - 1)
        half, most = np.percentile(error, [50, 90])
        print(
            f"{name} {dtype}: {len(error)} times, {half:.1f} {most:.1f} %, {time.monotonic() - begun:.0f} s", flush=True
        )
    source = SOURCES.get(name, AICONFIGURATOR)
    learnt = Learnt(tuple(found), source=source)
    return Learnt(learnt.entries, spreads_of_unknown(learnt, everything), source)


def spreads_of_unknown(learnt: Learnt, everything: Sequence[MeasuredTimes]) -> dict[tuple[str, str, str], Spread]:
    """Spread of errors on GPUs left out (with kin, with other families), and of types left out.

    Each family counts the same, however many times of it there are: the next GPU is of one more family. Of whole models
    each time does, as two families have few models and slow hosts.
    """
    pairs: dict[tuple[str, str, str], dict[str, list[Floats]]] = {}
    for basis, one, expected in [*machines_left_out(learnt, everything), *types_left_out(learnt, everything)]:
        families = pairs.setdefault((one.kind, basis, "bf16" if basis == PHYSICS else one.dtype), {})
        family = family_of(find_machine(one.machine)) if one.kind != "model" else ""
        families.setdefault(family, []).append(np.array([expected, one.measured.time_us]))
    found = {}
    for key, families in pairs.items():
        each = [np.concatenate(times, axis=1) for times in families.values()]
        most = max(times.shape[1] for times in each)
        expected, measured = np.concatenate([times[:, np.arange(most) % times.shape[1]] for times in each], axis=1)
        found[key] = spread_of(expected, measured, WIDER[key[1]])
    return found


def machines_left_out(learnt: Learnt, everything: Sequence[MeasuredTimes]) -> Iterator[LeftOut]:
    """Each machine left out alone, and with its family."""
    for times in by_kind_and_type(everything).values():
        for out in dict.fromkeys(out for one in times for out in (frozenset({one.machine}), family_in(times, one))):
            rest = fitted_without(learnt, times, out)
            for one in times:
                if one.machine in out and rest.entries:
                    use = rest.basis(one.kind, find_machine(one.machine), *type_and_rest(one.dtype))
                    yield use.kind, one, expected_us(KINDS[one.kind], use.logs, use.corrections, one.measured)


def family_in(times: Sequence[MeasuredTimes], of: MeasuredTimes) -> frozenset[str]:
    """The measured machines of the same family."""
    family = family_of(find_machine(of.machine))
    return frozenset(one.machine for one in times if family_of(find_machine(one.machine)) == family)


def fitted_without(learnt: Learnt, times: Sequence[MeasuredTimes], out: Collection[str]) -> Learnt:
    """The other machines' entries of a kind and type; the corrections that machines share are fitted without `out`."""
    rest = [one for one in times if one.machine not in out]
    known = {(entry.kind, entry.dtype, entry.machine): entry for entry in learnt.entries}
    kept = [known[one.kind, one.dtype, one.machine] for one in rest]
    fits = fit_corrections(rest, [entry.logs for entry in kept]) if rest else []
    return Learnt(tuple(replace(entry, corrections=fit.corrections) for entry, fit in zip(kept, fits, strict=True)))


def types_left_out(learnt: Learnt, everything: Sequence[MeasuredTimes]) -> Iterator[LeftOut]:
    """Each type left out on machines whose BF16 is known, without corrections, as these are of a type."""
    for one in everything:
        if not one.dtype.startswith("bf16") and one.kind not in SOURCES:
            others = tuple(e for e in learnt.entries if (e.kind, e.dtype) != (one.kind, one.dtype))
            use = Learnt(others).basis(one.kind, find_machine(one.machine), *type_and_rest(one.dtype))
            yield PHYSICS, one, expected_us(KINDS[one.kind], use.logs, None, one.measured)


def type_and_rest(name: str) -> tuple[str, str]:
    """Split a learnt name into its data type and the rest."""
    dtype, comma, rest = name.partition(",")
    return dtype, comma + rest


def main() -> None:
    """Fit the named kinds (default: all)."""
    for name in sys.argv[1:] or (*READERS, FP32):
        if name == FP32:
            write_bytes_atomically(SHIPPED / f"{FP32}.toml", written(fp32_products(shipped()), OF_FP32).encode())
            continue
        text = written(fitted_kind(name), COMMENT).encode()
        if KINDS[name].grids:
            write_bytes_atomically(SHIPPED / f"{name}.toml.gz", gzip.compress(text, mtime=0))
        else:
            write_bytes_atomically(SHIPPED / f"{name}.toml", text)


if __name__ == "__main__":
    main()
