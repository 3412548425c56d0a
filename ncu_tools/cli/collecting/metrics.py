"""ncu-bench machines --metrics: the metrics of each group on a chip, and how often a kernel runs for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from ncu_launch.counters.chips import Chip, chip_of, chips, find_chip, version_of, version_text
from ncu_launch.counters.metric_groups import MetricSelection, group_meaning, group_names, select
from ncu_launch.counters.pass_counts import Passes, passes_of
from ncu_launch.errors import WrongUsage
from ncu_launch.profilers.command_line import Version
from ncu_launch.profilers.installed_tools import find_tool, gpus, listed_metrics
from ncu_launch.profilers.sampling.pytorch_groups import sampled_groups

from ncu_tools.cli.options import format_option, show
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import Table

TENSOR_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
PASSES = columns("metrics passes passes_in_ncu")
GROUP_COLUMNS = (column("group"), *PASSES, column("meaning"))
CHIP_COLUMNS = (*columns("chip compute_capability group"), *PASSES)
METRIC_COLUMNS = columns("metric group value.unit per collected_by~1 meaning")


@click.command()
@click.option("--metrics", "groups", multiple=True, flag_value="", is_flag=False, metavar="[GROUP,...]",
    help="What these groups, metrics and patterns collect; without one the groups are listed.",
)  # fmt: skip
@click.option("--chip", "chip_name", metavar="CHIP", help="Such as gh100; the GPU of this machine if not given.")
@click.option("--ncu-version", metavar="VERSION", help="Such as 2024.1; the newest if not given.")
@click.option("--all-chips", is_flag=True, help="Every chip instead of one: how many metrics, how many passes.")
@click.option(
    "--dtype", type=click.Choice(TENSOR_TYPES), help="The type a workload computes in; flops counts that one."
)
@format_option
def command(
    groups: tuple[str, ...],
    chip_name: str | None,
    ncu_version: str | None,
    all_chips: bool,
    dtype: str | None,
    output_format: str,
) -> None:
    """Show what --metrics of profile collects: names, meaning, weights, units and passes.

    GROUP is a group, a metric or a pattern, as for profile --metrics. Without one the groups are listed. Passes are
    sets of counters that cannot be collected together; ncu runs a kernel once more than that, or once for one pass.

    \b
    Example:
      ncu-bench machines --metrics
      ncu-bench machines --metrics flops,dram --chip gh100
      ncu-bench machines --metrics tensor --all-chips
    """
    if all_chips and chip_name:
        raise WrongUsage("--all-chips and --chip exclude each other.", advice="Leave one of them out.")
    version = version_of(ncu_version) if ncu_version else None
    wanted = [part for group in groups for part in group.split(",") if part]
    if all_chips:
        show(_of_all_chips(wanted, version, dtype), output_format)
        return
    chip, notes = _chip(chip_name, version)
    table = _of_groups(chip, version, dtype) if not wanted else _of_metrics(wanted, chip, version, dtype)
    show(
        Table("metrics", table.columns, table.rows, [*notes, *table.notes], table.extra), output_format, full_names=True
    )


def _chip(name: str | None, version: Version | None) -> tuple[Chip | None, list[str]]:
    """The requested chip, or that of the first GPU here, with notes on it."""
    if name is not None:
        chip: Chip | None = find_chip(name)
    else:
        here = gpus()
        chip = chip_of(here[0].compute_capability, here[0].name) if here else None
    if chip is None:
        return None, ["the chip is not known: groups have the metrics of every chip; --chip NAME shows all of one"]
    notes = [f"{chip.name}: {chip.title}, {_capability(chip)}"]
    if not chip.known_to(version):
        known = f"from {version_text(chip.since)} on" if chip.since else "up to a version"
        notes.append(
            f"ncu {version_text(version) if version else 'of today'} does not know {chip.name}: "
            + (f"{version_text(chip.until)} is the last that does" if chip.until else f"it is known {known}")
        )
    return chip, notes


def _capability(chip: Chip) -> str:
    return (
        f"compute capability {chip.compute_capability}" if chip.compute_capability else "compute capability not known"
    )


def _of_groups(chip: Chip | None, version: Version | None, dtype: str | None) -> Table:
    """Every group with its number of metrics and passes."""
    rows = [
        {"group": group, "meaning": group_meaning(group), **_takes(_alone(group, chip, version, dtype), chip)}
        for group in group_names()
    ]
    of_samples = f"with profile --tool torch PyTorch's profiler samples {', '.join(sampled_groups())} over time"
    return Table("metrics", GROUP_COLUMNS, rows, [of_samples])


def _of_all_chips(wanted: Sequence[str], version: Version | None, dtype: str | None) -> Table:
    """Metrics and passes of each group on every chip; of several groups, all together."""
    groups = [list(wanted)] if wanted else [[group] for group in group_names()]
    rows: list[dict[str, Any]] = []
    notes = []
    for chip in chips():
        if not chip.known_to(version):
            notes.append(f"{chip.name} (up to {version_text(chip.until)})" if chip.until else chip.name)
            continue
        for group in groups:
            takes = _takes(select(group, chip, version, dtype=dtype), chip)
            rows.append(
                {"chip": chip.name, "compute_capability": chip.compute_capability, "group": ",".join(group), **takes}
            )
    newest = f"ncu {version_text(version)}" if version else "the newest ncu"
    unknown = f"{len(notes)} of {len(chips())} chips are not known to {newest}: {', '.join(notes)}; see --ncu-version"
    return Table("metrics", CHIP_COLUMNS, rows, [unknown] if notes else [])


def _alone(group: str, chip: Chip | None, version: Version | None, dtype: str | None) -> MetricSelection:
    return select([] if group == "time" else [group], chip, version, dtype=dtype)


def _takes(selection: MetricSelection, chip: Chip | None) -> dict[str, int | None]:
    passes = passes_of(selection, chip)
    return {"metrics": len(selection.names), "passes": passes.in_library, "passes_in_ncu": passes.in_ncu}


def _of_metrics(wanted: Sequence[str], chip: Chip | None, version: Version | None, dtype: str | None) -> Table:
    """Every requested metric, with the passes for all of them."""
    ncu = find_tool("ncu")
    listed = listed_metrics(ncu, chip.name) if ncu is not None and chip is not None else frozenset()
    selection = select(wanted, chip, version, dtype=dtype, listed=sorted(listed))
    passes = passes_of(selection, chip)
    rows = [
        {
            "metric": counter.name,
            "group": counter.group or None,
            "unit": counter.unit or None,
            "per": counter.per or None,
            "collected_by": "ncu itself" if counter.by_tool else "code" if counter.is_sass else "hardware",
            "meaning": counter.meaning or None,
        }
        for counter in selection.counters
    ]
    notes = [_passes_in_words(passes), *selection.notes]
    return Table("metrics", METRIC_COLUMNS, rows, notes, {"passes": passes.in_library, "passes_in_ncu": passes.in_ncu})


def _passes_in_words(passes: Passes) -> str:
    if passes.of_hardware is None:
        return "how many passes this takes is not known before it runs"
    if passes.in_library == 1:
        return "1 pass: nothing is replayed"
    parts = f"{passes.of_hardware} for hardware counters" + (
        " and 1 for counters of the code" if passes.of_sass else ""
    )
    return f"{passes.in_library} passes ({parts}); ncu runs each kernel {passes.in_ncu} times"
