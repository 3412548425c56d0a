"""ncu-bench machines: what machines can do at most, and who says so."""

from __future__ import annotations

from typing import Any

import click
from ncu_launch.errors import NcuBenchError

from ncu_tools.ceilings import unit_title
from ncu_tools.cli.options import format_option, show
from ncu_tools.machine import Machine, find_machine, machine_files, machines, problems
from ncu_tools.report.table import Column, Table
from ncu_tools.report.units import scaled

LIST_COLUMNS = (
    Column("id", "machine"),
    Column("name", "name"),
    Column("compute_capability", "CC"),
    Column("fp64", "FP64", "flop/s", "FLOP/s"),
    Column("fp32", "FP32", "flop/s", "FLOP/s"),
    Column("tensor_fp16", "tensor FP16", "flop/s", "FLOP/s"),
    Column("tensor_fp8", "tensor FP8", "flop/s", "FLOP/s"),
    Column("dram", "DRAM", "byte/s", "byte/s"),
    Column("memory_bytes", "memory", "byte", "byte"),
)
CHECK_COLUMNS = (Column("id", "machine"), Column("problem", "problem", wide=True))
RATE_COLUMNS = (
    Column("unit", "unit"),
    Column("dense", "dense"),
    Column("sparse", "sparse"),
    Column("value", "", unit="FLOP/s, OP/s or byte/s"),
    Column("sparse_value", "", unit="FLOP/s or OP/s"),
    Column("source", "source", wide=True),
    Column("note", "note"),
)


@click.command()
@click.argument("name", required=False)
@click.option("--check", is_flag=True, help="Check every machine file and say what is wrong.")
@format_option
def command(name: str | None, check: bool, output_format: str) -> None:
    """List the machines whose ceilings are known, or show one with the source of every value.

    Rates are dense; sparse ones stand apart. What a data sheet does not say is left out.

    \b
    Example:
      ncu-bench machines
      ncu-bench machines h100-sxm --format json
    """
    if check:
        _check(output_format)
    elif name:
        show(_one(find_machine(name), output_format), output_format, full_names=True)
    else:
        show(Table("machines", LIST_COLUMNS, [_line(machine) for machine in machines().values()]), output_format)


def _line(machine: Machine) -> dict[str, Any]:
    rates = {unit: rate.value for unit, rate in machine.rates.items()}
    facts = {"id": machine.id, "name": machine.name, "compute_capability": machine.compute_capability}
    return {**rates, **facts, "memory_bytes": machine.memory_bytes}


def _one(machine: Machine, output_format: str) -> Table:
    rows = []
    for rate in (*machine.bandwidths, *machine.peaks):
        unit = "B/s" if rate.unit in ("dram", "l2", "l1") else "OP/s" if "_int" in rate.unit else "FLOP/s"
        rows.append(
            {
                "unit": unit_title(rate.unit) if output_format in ("text", "markdown") else rate.unit,
                "dense": scaled(rate.value, unit),
                "sparse": None if rate.sparse is None else scaled(rate.sparse, unit),
                "value": None if output_format in ("text", "markdown") else rate.value,
                "sparse_value": None if output_format in ("text", "markdown") else rate.sparse,
                "source": rate.source,
                "note": rate.note or None,
            }
        )
    facts = [machine.name]
    if machine.chip:
        facts.append(f"chip {machine.chip}, compute capability {machine.compute_capability}, {machine.sm_count} SMs")
    if machine.boost_clock_hz:
        facts.append(f"peaks assume {machine.boost_clock_hz / 1e9:.3f} GHz")
    return Table("machines", RATE_COLUMNS, rows, [", ".join(facts)])


def _check(output_format: str) -> None:
    """Show what is wrong with which machine file; fail when anything is."""
    files = machine_files()
    wrong = [{"id": machine_id, "problem": found} for machine_id, text in files for found in problems(text)]
    notes = [] if wrong else [f"{len(files)} machine files are valid"]
    show(Table("machines", CHECK_COLUMNS, wrong, notes), output_format)
    if wrong:
        raise NcuBenchError("Not every machine file is valid.", advice="Mend what is named above.")
