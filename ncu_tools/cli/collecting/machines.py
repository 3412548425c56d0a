"""ncu-bench machines: peaks and bandwidths of machines, with their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from ncu_launch.bench.machine_measurement import measured
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import replacing_output
from ncu_launch.workload_spec import DEVICES

from ncu_tools.ceilings.ceilings import rate_unit, unit_title
from ncu_tools.ceilings.machine_files import (
    Machine,
    Rate,
    find_machine,
    machine_files,
    machines,
    own_folder,
    problems,
    which_board,
)
from ncu_tools.ceilings.measured_machine import keep_measured, left_out, unit_of_product
from ncu_tools.cli.options import FILE, format_option, show, status_and_lines
from ncu_tools.cli.views import Verb
from ncu_tools.numbers.number_format import scaled
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

LIST_COLUMNS = columns("id name compute_capability fp64 fp32~0 tensor_fp16 tensor_fp8 dram~0 memory_bytes")
CHECK_COLUMNS = columns("id problem")
RATE_COLUMNS = columns("unit dense~0 sparse machines.value sparse_value source note")


MEASURE = "measure"
SAMPLE_COLUMNS = columns("machines.what by size machines.rate sustained rate_unit spread")


@click.command(cls=Verb)
@click.argument("name", required=False, metavar="[NAME|measure]")
@click.option("--check", is_flag=True, help="Check every machine file and say what is wrong.")
@click.option("--on", "device", type=click.Choice(DEVICES), default="auto", show_default=True, help="What to measure.")
@click.option(
    "--seconds", type=click.FloatRange(0.01, 60), default=1.0, show_default=True, help="How long to measure each work."
)
@click.option("-o", "--output", type=FILE, help="The machine file to write.")
@format_option
def command(
    name: str | None, check: bool, device: str, seconds: float, output: Path | None, output_format: str
) -> None:
    """List the machines whose ceilings are known, show one with the source of every value, or measure this one.

    Rates are dense; sparse ones are listed separately. Values that a data sheet lacks are left out. Measuring times
    memory traffic and matrix products with PyTorch, and writes a machine file that is marked measured and gives later
    runs on this device their ceilings; it is written to -o, by default to ~/.config/ncu-bench/machines.

    \b
    Example:
      ncu-bench machines
      ncu-bench machines h100-sxm --format json
      OMP_NUM_THREADS=1 ncu-bench machines measure
    """
    if check:
        _check(output_format)
    elif name == MEASURE:
        _measure(device, seconds, output, output_format)
    elif name:
        machine = find_machine(name)
        table = _table_of_machine(machine, output_format)
        table.notes = [*which_board(name, machine), *table.notes]
        show(table, output_format, full_names=True)
    else:
        show(Table("machines", LIST_COLUMNS, [_line(machine) for machine in machines().values()]), output_format)


def _measure(device: str, seconds: float, output: Path | None, output_format: str) -> None:
    """Measure, write the machine file, and show every operation with its spread."""
    if output is None:
        own_folder().mkdir(parents=True, exist_ok=True)
    _require_writable(output or own_folder() / f"{MEASURE}.toml")
    with status_and_lines("measuring memory and matrix products"):
        found = measured(seconds, device)
    target = keep_measured(found, output)
    notes = [*found["notes"], *left_out(found), f"the machine file is {target}"]
    rows = [_sample(sample, "dram", output_format) for sample in found["memory"]]
    rows += [_sample(sample, unit_of_product(sample["what"]), output_format) for sample in found["products"]]
    show(Table("machines", SAMPLE_COLUMNS, rows, notes), output_format)


def _require_writable(path: Path) -> None:
    """Raise `NcuBenchError` if a file cannot be written, before spending minutes on its content."""
    with replacing_output(path) as temporary:
        temporary.unlink()


def _sample(sample: dict[str, Any], unit: str, output_format: str) -> dict[str, Any]:
    for_people = output_format in ("text", "markdown")
    text = _rate_text(unit)
    rate = {name: scaled(sample[name], text) if for_people else sample[name] for name in ("burst", "sustained")}
    size = {"what": sample["what"], "by": sample["by"] or None, "size": sample["size"], "spread": sample["spread"]}
    return {**size, "rate": rate["burst"], "sustained": rate["sustained"], "rate_unit": None if for_people else text}


def _rate_text(unit: str) -> str:
    """The unit of a rate for people, such as B/s."""
    return rate_unit(unit).replace("byte", "B")


def _line(machine: Machine) -> dict[str, Any]:
    rates = {unit: rate.value for unit, rate in machine.rates.items()}
    facts = {"id": machine.id, "name": machine.name, "compute_capability": machine.compute_capability}
    return {**rates, **facts, "memory_bytes": machine.memory_bytes}


def _table_of_machine(machine: Machine, output_format: str) -> Table:
    rows = []
    for rate in (*machine.bandwidths, *machine.peaks):
        unit = _rate_text(rate.unit)
        rows.append(
            {
                "unit": unit_title(rate.unit) if output_format in ("text", "markdown") else rate.unit,
                "dense": scaled(rate.value, unit),
                "sparse": None if rate.sparse is None else scaled(rate.sparse, unit),
                "value": None if output_format in ("text", "markdown") else rate.value,
                "sparse_value": None if output_format in ("text", "markdown") else rate.sparse,
                "source": rate.source,
                "note": "; ".join(filter(None, (rate.note, _slower(rate, unit)))) or None,
            }
        )
    facts = [machine.name]
    if machine.chip:
        facts.append(f"chip {machine.chip}, compute capability {machine.compute_capability}")
    if machine.sm_count:
        facts.append(f"{machine.sm_count} SMs")
    if machine.boost_clock_hz:
        facts.append(f"peaks assume {machine.boost_clock_hz / 1e9:.3f} GHz")
    notes = [", ".join(facts)]
    unknown = [
        title for title, value in (("number of SMs", machine.sm_count), ("clock", machine.boost_clock_hz)) if not value
    ]
    if machine.chip and unknown:
        notes.append(f"not known, for want of a source: {' and '.join(unknown)}")
    if machine.same_name:
        notes.append(machine.same_name)
    return Table("machines", RATE_COLUMNS, rows, notes)


def _slower(rate: Rate, unit: str) -> str:
    """The rate of the slower instruction, if there is one."""
    return "" if rate.mma_sync is None else f"by wgmma; mma.sync {scaled(rate.mma_sync, unit)}"


def _check(output_format: str) -> None:
    """Show the problems of machine files; fail if there are any."""
    files = machine_files()
    wrong = [{"id": machine_id, "problem": found} for machine_id, text in files for found in problems(text)]
    valid = f"{len(files)} machine files are valid"
    if not wrong and output_format == "text":
        click.echo(valid)
        return
    show(Table("machines", CHECK_COLUMNS, wrong, [] if wrong else [valid]), output_format)
    if wrong:
        raise NcuBenchError("Not every machine file is valid.", advice="Correct the files named above.")
