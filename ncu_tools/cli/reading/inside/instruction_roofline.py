"""ncu-bench roofline --instructions: the table of the instruction roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncu_launch.errors import WrongUsage

from ncu_tools.bench.bench_runs import is_bench
from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.cli.options import first_rows, progress
from ncu_tools.numbers.number_format import scaled
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table
from ncu_tools.roofline.instruction_roofline import InstructionRoofline, instruction_roofline
from ncu_tools.roofline.scene import LEVELS, Scene
from ncu_tools.runs.loading import load, points_summed, with_compiled_lines
from ncu_tools.runs.selection import Selection

UNIT = "inst/transaction"
COLUMNS = columns(
    "kernel run launches~3 time_total_ns~1 time_share~0 dram_intensity~0 l2_intensity~2 l1_intensity~2 "
    "shared_intensity~2 giga_instructions_per_s~0 of_issue~0"
)
MACHINE_READABLE = columns("instructions")


@dataclass(frozen=True)
class InstructionsOf:
    """Input of an instruction roofline: memory levels, machine, launches, and the grouping of kernels.

    `inductor` names the file with lines of generated kernels; "" for none.
    """

    levels: tuple[str, ...]
    machines: Sequence[Machine]
    only: Selection | None
    group: str
    inductor: str = ""


def require_kernels(runs: Sequence[str], options: Mapping[str, bool]) -> None:
    """Raise `WrongUsage` for options without a meaning here, and for runs without counters."""
    given = [name for name, is_given in options.items() if is_given]
    if given:
        raise WrongUsage(
            f"An instruction roofline has kernels alone, and nothing for {', '.join(given)}.", advice="Leave it out."
        )
    if not runs or any(map(is_bench, runs)):
        raise WrongUsage(
            "An instruction roofline needs counters of kernels, which neither machines nor sweeps have.",
            advice="Name a report of ncu.",
        )


def instructions_of(runs: Sequence[str], asked: InstructionsOf) -> InstructionRoofline:
    """The instruction roofline of the runs that paths name.

    Raises `NcuBenchError` if one cannot be read, `WrongUsage` for several machines.
    """
    if len(asked.machines) > 1:
        raise WrongUsage("An instruction roofline takes one machine.", advice="Say --machine once.")
    tables, notes = {}, []
    with progress("Reading") as reading:
        for path in runs:
            run = load(path, reading=reading)
            run = asked.only.of(run) if asked.only is not None else run
            run = with_compiled_lines(run, asked.inductor) if asked.inductor else run
            tables[run.name] = run.table
            notes += [*points_summed(path, asked.only), *run.notes]
    result = instruction_roofline(tables, asked.levels, next(iter(asked.machines), None), asked.group)
    result.notes += notes
    return result


def instruction_table(
    result: InstructionRoofline, scene: Scene, notes: list[str], top: int | None, output_format: str
) -> Table:
    """The table of kernels, with the roofs as notes, and in JSON the scene of the picture."""
    points, hidden = first_rows(result.points, top, output_format, "kernel")
    several = len(result.runs) > 1 or output_format == "json"
    rows = [
        {
            **asdict(point),
            "run": point.run if several else None,
            "giga_instructions_per_s": None if point.instructions_per_s is None else point.instructions_per_s / 1e9,
            **{f"{level}_intensity": point.intensities.get(level) for level in LEVELS},
        }
        for point in points
    ]
    roofs = [
        f"{roof.device}: {'warp issue' if roof.unit == 'issue' else unit_title(roof.unit)} "
        f"{scaled(roof.value, roof.value_unit)} ({roof.source})"
        for roof in result.roofs
    ]
    extra: dict[str, Any] = {"scene": scene.as_json(), "ceilings": [asdict(roof) for roof in result.roofs]}
    columns = [one for one in COLUMNS if one.name.removesuffix("_intensity") not in set(LEVELS) - set(result.levels)]
    is_json = output_format == "json"
    shown = [*result.notes, *([] if is_json else roofs), *hidden, *notes]
    return Table("roofline", columns, rows, shown, extra if is_json else {}, MACHINE_READABLE)
