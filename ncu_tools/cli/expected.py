"""ncu-bench expected: measured FLOPs and bytes beside those of operator formulas."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError
from ncu_launch.manifest import read_manifest
from ncu_launch.ranges import RUN_PHASES

from ncu_tools.cli.options import format_option, hidden_rows, progress, rows_shown, show, top_option
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from ncu_tools.expected import Comparison, Row
    from ncu_tools.expected_work import Collection

LOWER = "flops_lower_bound"

COLUMNS = (
    Column("scope", "scope"),
    Column("phase", "phase"),
    Column("module", "layer", wide=True),
    Column("measured_flops", "FLOPs", "flop", "FLOP", lower_bound_if=LOWER),
    Column("expected_flops", "expected", "flop", "FLOP"),
    Column("flops_ratio", "ratio", "number", lower_bound_if=LOWER),
    Column("measured_integers", "integer OPs", "op", "OP"),
    Column("expected_integers", "expected", "op", "OP"),
    Column("integers_ratio", "ratio", "number"),
    Column("measured_bytes", "DRAM", "byte", "byte"),
    Column("expected_bytes", "expected bytes", "byte", "byte"),
    Column("bytes_ratio", "ratio of bytes", "number"),
    Column("launches", "launches", "count"),
    Column("fitting", "what fits"),
)
MACHINE_READABLE = (Column("causes", "causes"), Column(LOWER, "lower bound"))
NOT_THE_SAME_BYTES = (
    "expected bytes are inputs, weights and outputs of every operator; caches make DRAM traffic smaller, "
    "so their ratio is not judged"
)


@click.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--depth", type=click.IntRange(min=1), metavar="N", help="Layers are the first N parts of module paths, whole."
)
@click.option(
    "--phase", "phases", type=click.Choice(RUN_PHASES), multiple=True, help="Show only this phase; may be repeated."
)
@top_option("layers")
@format_option
def command(run: str, depth: int | None, phases: tuple[str, ...], top: int | None, output_format: str) -> None:
    """Set measured FLOPs and bytes beside expected ones: for the model, each phase and each layer.

    RUN is the folder of a model target that was profiled under ncu. Expected FLOPs are those of contractions, from the
    shapes of its operators. Where measured / expected leaves 0.97 to 1.05, a note says which known cause fits and which
    does not.

    \b
    Example:
      ncu-bench expected runs/resnet18-20260102T030405Z
      ncu-bench expected RUN --depth 2 --phase backward --format csv
    """
    from ncu_tools.expected import LAYER, MODEL, compare
    from ncu_tools.loading import expected_of, load

    with progress("Reading") as reading:
        measured = load(run, reading=reading)
    _refuse_formulas(run, measured.table)
    comparison = compare(measured.table, expected_of(run), collection=_collection(run), depth=depth)
    rows = [row for row in comparison.rows if row.scope == MODEL or not phases or row.phase in phases]
    heads = [row for row in rows if row.scope != LAYER]
    layers = [row for row in rows if row.scope == LAYER]
    top = rows_shown(top, output_format)
    notes = hidden_rows(len(layers), top, "more layer has less work", "more layers have less work")
    layers = layers[:top]
    notes += _notes(comparison, [*heads, *layers])
    columns = (*COLUMNS, *MACHINE_READABLE) if output_format in ("json", "csv") else COLUMNS
    extra = {"iterations": comparison.iterations}
    show(
        Table("expected", columns, [_cells(row) for row in [*heads, *layers]], [*notes, *measured.notes], extra),
        output_format,
    )


def _refuse_formulas(run: str, table: pa.Table) -> None:
    """Raise `NcuBenchError` for a run of the operator collector: its FLOPs are the formulas'."""
    from ncu_parsers import tables

    if set(tables.words(table, "source")) <= {"operators", "estimate"}:
        raise NcuBenchError(
            f"{run} holds nothing that was measured: its FLOPs and bytes come from the same operator formulas.",
            "It was made by the embedded operator collector.",
            "Profile the model under ncu on a machine with an NVIDIA GPU: ncu-bench profile TARGET --tool ncu",
        )


def _collection(run: str) -> Collection:
    """What the manifest says of the collection; nothing where there is no manifest, or none that can be read."""
    from ncu_tools.expected_work import Collection, collection_of

    folder = Path(run) if Path(run).is_dir() else Path(run).parent
    try:
        return collection_of(read_manifest(folder))
    except (OSError, ValueError, TypeError):
        return Collection()


def _cells(row: Row) -> dict[str, object]:
    unexplained = row.flops_ratio is not None and row.causes
    return {
        **asdict(row),
        "fitting": ", ".join(row.fitting) or ("no known cause" if unexplained else None),
        "causes": " ".join(row.causes) or None,
    }


def _notes(comparison: Comparison, rows: list[Row]) -> list[str]:
    """What the comparison notes, then the causes of every row that has any, the model first."""
    from ncu_tools.expected import title

    causes = [f"{title(row)}: {' '.join(row.causes)}" for row in rows if row.causes]
    return [*comparison.notes, NOT_THE_SAME_BYTES, *causes]
