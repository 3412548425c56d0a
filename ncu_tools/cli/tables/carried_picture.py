"""The picture of `estimate RUN -o FILE.svg`: rooflines of machines, with arrows from measured to expected kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ncu_tools.ceilings.machine_files import DRAM, Machine
from ncu_tools.kernels.names.distinct_names import distinct_names
from ncu_tools.model.expected.carried_run import CarriedKernel
from ncu_tools.model.expected_time.operator_shapes import shapes_in
from ncu_tools.roofline.roofline import of_machines, worth_drawing
from ncu_tools.roofline.scene import Arrow, LevelPlace, Mark, Scene, SceneRun
from ncu_tools.roofline.scene_builder import scene_of

MOST_KERNELS = 8
"""Kernels drawn, the longest first: each has a mark and an arrow for every machine."""


def scene_of_carried(rows: Sequence[CarriedKernel], measured_on: Machine, machines: Sequence[Machine]) -> Scene:
    """The longest kernels whose FLOPs and bytes are known, as measured and as expected on each machine."""
    everywhere = [measured_on, *machines]
    drawn = [row for row in rows if row.expected_ns and (row.flops or 0) > 0 and (row.moved or 0) > 0]
    longest = [row for row in drawn if row.machine == machines[0].id][:MOST_KERNELS]
    keys = [(row.kernel, row.operator, row.shapes) for row in longest]
    shown = distinct_names(row.kernel for row in longest)
    sizes = [" ".join("x".join(map(str, shape)) for shape in shapes_in(row.shapes)) for row in longest]
    names = [f"{shown[row.kernel]} {text}".strip() for row, text in zip(longest, sizes, strict=True)]
    totals = [sum(row.time_ns for row in rows if row.machine == machines[0].id and row.expected_ns)]
    totals += [sum(row.expected_ns or 0.0 for row in rows if row.machine == machine.id) for machine in machines]
    marks = [_mark(row, name, 0, row.time_ns, totals) for row, name in zip(longest, names, strict=True)]
    arrows: list[Arrow] = []
    for run, machine in enumerate(machines, 1):
        for row in drawn:
            if row.machine == machine.id and (key := (row.kernel, row.operator, row.shapes)) in keys:
                arrows.append(Arrow(keys.index(key), len(marks)))
                marks.append(_mark(row, names[keys.index(key)], run, row.expected_ns or 0.0, totals))
    roofs = of_machines(everywhere)
    roofs.ceilings = roofs.known = worth_drawing(roofs.ceilings, {row.unit for row in longest})
    runs = [
        SceneRun(text, text, total or None, machine.name)
        for machine, how, total in zip(everywhere, ("measured", *["expected"] * len(machines)), totals, strict=True)
        if (text := f"{how} on {machine.id}")
    ]
    not_drawn = sum(row.machine == machines[0].id for row in rows) - len(longest)
    return replace(scene_of(roofs), runs=runs, marks=marks, arrows=arrows, not_drawn=not_drawn)


def _mark(row: CarriedKernel, name: str, run: int, time_ns: float, totals: Sequence[float]) -> Mark:
    flops, moved = row.flops or 0.0, row.moved or 1.0
    return Mark(
        name=name, label=name, run=run, flops_per_s=flops * row.launches / time_ns * 1e9,
        places=(LevelPlace(DRAM, flops / moved),), weight=time_ns / max(totals), time_ns=time_ns,
        time_share=time_ns / totals[run], launches=row.launches, unit=row.unit, bound=row.bound,
    )  # fmt: skip
