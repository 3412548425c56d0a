"""ncu-bench roofline: kernels under the ceilings of their machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.ceilings.machine_files import BYTES_COUNTED, DRAM, TRAFFIC, Machine, find_machine, which_board
from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.option_kinds.rows_and_order import KERNEL_ROWS, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import require_no_dask, selection_options
from ncu_tools.cli.options import (
    FILE,
    MACHINE_FORMATS,
    dask_option,
    echo_heads,
    echo_notes,
    engine_of,
    first_rows,
    format_option,
    inductor_option,
    options_in,
    progress,
    rows_shown,
    settings_options,
    show,
    top_option,
)
from ncu_tools.cli.tables.hotspots.locations import LOCATION
from ncu_tools.cli.tables.roofline_pictures import (
    NUMBER,
    Style,
    check_style,
    default_title,
    drawn_again,
    echo_picture,
    is_drawn_here,
    with_numbers,
    write_picture,
)
from ncu_tools.cli.tables.time_titles import with_time_title
from ncu_tools.numbers.number_format import counted, digits, scaled
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.plot.theme import THEMES
from ncu_tools.report.table import KERNEL, Column, Table
from ncu_tools.roofline.scene import AUTO, CEILINGS, KERNELS, LAUNCHES, LEVELS, MODULES, RUNS, VIEWS, Scene

if TYPE_CHECKING:
    from ncu_parsers.sources.settings import Settings

    from ncu_tools.ceilings.ceilings import Ceiling
    from ncu_tools.cli.reading.inside.instruction_roofline import InstructionsOf
    from ncu_tools.report.head import Head
    from ncu_tools.roofline.instruction_roofline import InstructionRoofline
    from ncu_tools.roofline.load_for_roofline import Loaded
    from ncu_tools.roofline.roofline import Look, Point, Roofline
    from ncu_tools.roofline.scene import SceneRun
    from ncu_tools.runs.selection import Selection

LOWER = "flops_lower_bound"
COLUMNS = columns(
    "kernel run launches~3 time_total_ns~1 time_share~0 arithmetic_intensity~0 l2_arithmetic_intensity "
    "l1_arithmetic_intensity shared_arithmetic_intensity sampled_arithmetic_intensity flops_per_s~0 unit~4 bound~0 "
    "bound_fraction~2"
)
MACHINE_READABLE = columns("dram_bytes_per_s flops_lower_bound flag kernel_id")
MANY_ROOFS = 12
"""From so many roofs on, text lists only those that bound kernels."""
RIDGE_OF_INTEGERS = "ridge at FLOP/B, OP/B"
BARE_COLUMNS = (column("roof"), column("device", wide=True), *columns("roof.rate~0 ridge roof.kind source"))
BARE_MACHINE_READABLE = columns("device unit instruction roof.sparse value value_unit ridge roof.kind source")


@dataclass(frozen=True)
class DrawnOptions:
    """Options on the drawing of a roofline: kinds and units of ceilings, labels of runs, arrows between runs."""

    ceilings: str
    units: tuple[str, ...]
    labels: tuple[str, ...]
    arrows: bool


@dataclass(frozen=True)
class PointOptions:
    """Options on the points, and on the bytes that give their positions."""

    points: str
    group: str
    depth: int | None
    levels: tuple[str, ...]
    cache_bytes: str
    instructions: bool


@dataclass(frozen=True)
class AskedRoofline:
    """The runs, and all options but those on loading them."""

    runs: tuple[str, ...]
    style: Style
    placed: PointOptions
    drawn: DrawnOptions
    only: Selection | None
    top: int | None
    dask: str | None
    output_format: str

    @property
    def selected(self) -> str:
        """The chosen launches in words; "" for all."""
        return self.only.title if self.only is not None else ""

    def titled(self, scene: Scene) -> Scene:
        """The scene with the title of a picture: as asked for, else by its runs."""
        if self.style.title is not None:
            return scene
        return replace(scene, title=default_title(self.runs, scene, self.selected))


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option("-o", "--output", type=FILE, help="Draw to this .svg, .png, .pdf or .txt file.")
@click.option(
    "--points", type=click.Choice(VIEWS), default=KERNELS, show_default=True,
    help="What one point is. From 10,000 launches on they are drawn as a density.",
)  # fmt: skip
@click.option("--depth", type=click.IntRange(min=0), help="With --points modules: how far below the model to look.")
@list_option(
    "--levels", type=click.Choice((*LEVELS, "all"), case_sensitive=False), metavar="LEVEL,...",
    help="Memory levels with a point each, joined by a line: dram, l2, l1, shared, or all.  "
    "[default: dram; all with --instructions]",
)  # fmt: skip
@click.option("--instructions", is_flag=True, help="Count warp instructions and transactions, not FLOPs and bytes.")
@click.option(
    "--cache-bytes", type=click.Choice(BYTES_COUNTED), default=TRAFFIC, show_default=True,
    help="What L2 and L1 bytes are: all traffic requested there, or what NVIDIA's charts count since 2023.",
)  # fmt: skip
@click.option(
    "--ceilings", type=click.Choice(CEILINGS), default=AUTO, show_default=True,
    help="Roofs to draw: those that matter here, dense ones alone, sparse ones too, or all that are known.",
)  # fmt: skip
@list_option("--unit", "units", metavar="UNIT,...", help="Draw the roofs of these units: fp32, bf16, tensor_fp8.")
@click.option("--arrows", is_flag=True, help="Join each point with the same one of the next run by an arrow.")
@click.option("--label", "labels", multiple=True, metavar="TEXT", help="What a run is called; once for each run.")
@list_option(
    "--machine", "machine_names", metavar="NAME,...",
    help="Take ceilings that the report lacks from this machine; several are drawn beside the report's own.",
)  # fmt: skip
@click.option(
    "--theme", type=click.Choice(tuple(THEMES)), default="light", show_default=True, help="White or dark paper."
)
@click.option(
    "--size", default="screen", show_default=True, metavar="SIZE",
    help="screen, slide, page (of a paper), column (of a paper), or WIDTHxHEIGHT in inches, or as 18x12cm.",
)  # fmt: skip
@click.option(
    "--title", default=None,
    help="A title for the picture; by default model, batch, phase and device of the runs. An empty one leaves it out.",
)  # fmt: skip
@top_option("points")
@rows_and_order(KERNEL_ROWS)
@settings_options
@inductor_option
@selection_options
@dask_option
@format_option
@options_in(Style, "style")
@options_in(PointOptions, "placed")
@options_in(DrawnOptions, "drawn")
def command(
    runs: tuple[str, ...],
    style: Style,
    placed: PointOptions,
    drawn: DrawnOptions,
    machine_names: tuple[str, ...],
    top: int | None,
    dask: str | None,
    output_format: str,
    only: Selection | None,
    settings: Settings,
    inductor: str,
) -> None:
    """Put every kernel on a roofline, and draw it.

    The table names each point. On a terminal the picture is above it as text; -o draws it to a file. --format json
    gives every point, ceiling and ridge point, and under "scene" the whole picture: such a JSON file in place of RUN is
    drawn again without the run. Ceilings come from the report itself if it has them, else from the machine file of its
    device, else from --machine. Without a RUN the bare rooflines of --machine are drawn. A sweep of ncu-bench bench is
    drawn point by point.

    \b
    Example:
      ncu-bench roofline report.csv
      ncu-bench roofline report.csv -o roofline.svg
      ncu-bench roofline report.csv --levels dram,l2,l1 --theme dark -o levels.png
      ncu-bench roofline report.ncu-rep --instructions --levels l1,dram -o instructions.svg
      ncu-bench roofline before.csv after.csv --arrows --label before --label after -o both.svg
      ncu-bench roofline batch1 batch64 batch256 --points runs --arrows -o batches.svg
      ncu-bench roofline run --phase forward --kernel conv -o convolutions.svg
      ncu-bench roofline sweep --arrows -o sweep.svg
      ncu-bench roofline --machine h100-sxm,gaudi-3,apple-m1 -o chips.svg
      ncu-bench roofline report.csv --format json > plot.json
      ncu-bench roofline plot.json -o roofline.svg
    """
    from ncu_tools.roofline.load_for_roofline import load_for, read_roofline_json

    check_style(style)
    _check_points(placed)
    if only is not None and (not runs or any(map(read_roofline_json, runs))):
        raise WrongUsage(
            "There are no launches to choose from: neither machines nor a roofline that was drawn before has any.",
            advice="Leave out --kernel, --phase, --layer, --device, --rank and --point, or name runs.",
        )
    if drawn_again(runs, style):
        return
    machines = [find_machine(name) for name in machine_names]
    echo_notes([note for name, one in zip(machine_names, machines, strict=True) for note in which_board(name, one)])
    if not runs and not machines:
        raise WrongUsage(
            "No run was named.", advice="Name a report, or a machine with --machine NAME for its bare roofline."
        )
    asked = AskedRoofline(runs, style, placed, drawn, only, top, dask, output_format)
    inductor = inductor if placed.group == LOCATION else ""
    if placed.instructions:
        _show_instructions(asked, machines, inductor)
    else:
        require_no_dask(only, dask)
        _show_points(asked, machines, partial(load_for, only=only, settings=settings, inductor=inductor))


def _check_points(placed: PointOptions) -> None:
    """Raise `WrongUsage` for an option on points of another kind than those that are asked for."""
    if placed.depth is not None and placed.points != MODULES:
        raise WrongUsage("--depth is of modules.", f"Points are {placed.points} here.", "Add --points modules.")
    if placed.group != "name" and placed.points not in (KERNELS, f"{placed.group}s"):
        raise WrongUsage(
            f"--by {placed.group} says what points of kernels are.", f"Points are {placed.points} here.",
            "Leave out --by or --points.",
        )  # fmt: skip


def _show_instructions(asked: AskedRoofline, machines: Sequence[Machine], inductor: str) -> None:
    """Show the roofline of warp instructions and transactions, and write its picture."""
    from ncu_tools.cli.reading.inside.instruction_roofline import InstructionsOf, instruction_table

    levels = _levels(asked.placed.levels or ("all",))
    loading = InstructionsOf(levels, machines, asked.only, asked.placed.group, inductor)
    found = _of_instructions(asked, loading)
    heads = _heads((), found[0].runs, asked.only)
    echo_heads(heads, asked.output_format)
    if is_drawn_here(asked.style, asked.output_format):
        echo_picture(found[1])
    table = instruction_table(*found, asked.top, asked.output_format)
    table.extra = {"heads": [one.as_json() for one in heads], **table.extra}
    show(table, asked.output_format)


def _show_points(asked: AskedRoofline, machines: Sequence[Machine], load: Callable[..., Loaded]) -> None:
    """Show the roofline of FLOPs and bytes, or of machines alone, and write its picture; `load` loads a run."""
    from ncu_tools.kernels.kernel_row import NAMES_OF_KERNELS
    from ncu_tools.kernels.names.kernel_ids import kernel_id
    from ncu_tools.roofline.roofline import Look

    placed, output_format = asked.placed, asked.output_format
    levels = _levels(placed.levels or (DRAM,))
    look = Look(placed.points, placed.group, placed.depth, levels, placed.cache_bytes, follow=asked.drawn.arrows)
    result, notes, models = _roofline(asked, machines, look, load)
    scene = _scene(result, asked.drawn, asked.selected if asked.style.title is None else asked.style.title, models)
    titled = asked.titled(scene)
    notes += _arrow_note(scene, asked.drawn.arrows)
    notes += write_picture(titled, asked.style) if asked.style.output is not None else []
    here = is_drawn_here(asked.style, output_format)
    if not result.runs and output_format != "json":
        table = _bare_table(result, notes, output_format)
    else:
        table = _table(result, titled, notes, asked, look)
        if result.view == KERNELS and placed.group == "name" and output_format in MACHINE_FORMATS:
            for row in table.rows:
                row["kernel_id"] = kernel_id(row["kernel"])
    if asked.runs:
        by_name = result.view in (KERNELS, LAUNCHES) and placed.group in NAMES_OF_KERNELS
        every = [*result.notes, *notes]
        heads = _heads(result.points, result.runs, asked.only, every, time_title=result.time_title, by_name=by_name)
        echo_heads(heads, output_format)
        table.extra = {"heads": [one.as_json() for one in heads], **table.extra}
    if here:
        echo_picture(scene, rows_shown(asked.top, output_format), legend=False)
    if result.runs and not here and output_format in ("text", "markdown"):
        _show_with_roofs(table, result, output_format)
    else:
        show(replace(table, columns=[NUMBER, *table.columns]) if here and result.runs else table, output_format)


def _show_with_roofs(table: Table, result: Roofline, output_format: str) -> None:
    """Write the points, and below them a table of ceilings if no picture shows them.

    Ceilings that bound nothing, such as sparse rates, are only listed if few: on Hopper there are dozens for two runs.
    """
    listed = [*result.ceilings, *result.undrawn, *result.others]
    left_out = len(result.others) if len(listed) > MANY_ROOFS else 0
    roofs = _bare_table(replace(result, known=listed[: len(listed) - left_out], notes=[]), [], output_format)
    if not roofs.rows:
        show(table, output_format)
        return
    notes, table.notes = table.notes, []
    if left_out:
        more = counted(left_out, "more roof bounds", "more roofs bound")
        notes = [*notes, Note(f"{more} nothing here; --format json lists them", NoteKind.MORE, "roofs")]
    show(table, output_format)
    click.echo()
    roofs.notes = notes
    show(roofs, output_format)


def _heads(
    points: Sequence[Point],
    runs: Sequence[SceneRun],
    only: Selection | None,
    notes: Sequence[str] = (),
    *,
    by_name: bool = True,
    time_title: str = "time",
) -> list[Head]:
    """A head line for each run; for a single run, with its most expensive kernel."""
    from ncu_tools.report.first_sentences import first_kernel
    from ncu_tools.report.head import head_of, told_apart

    found = []
    for run in runs:
        spots = [point.hotspot for point in points if point.run == run.name]
        found.append(
            head_of(
                [run.name], None, notes if len(runs) == 1 else (), only=only,
                devices=(run.device,) if run.device else (), time_ns=run.time_ns, time_title=time_title,
                launches=sum(spot.launches for spot in spots) if spots else None,
                first=first_kernel(spots, by_name=by_name) if len(runs) == 1 else None,
            )
        )  # fmt: skip
    return told_apart(found)


def _levels(wanted: Sequence[str]) -> tuple[str, ...]:
    return tuple(level for level in LEVELS if level in wanted or "all" in wanted)


def _of_instructions(asked: AskedRoofline, loading: InstructionsOf) -> tuple[InstructionRoofline, Scene, list[str]]:
    """The instruction roofline of runs, its scene, and notes on the picture, which is written."""
    from ncu_tools.cli.reading.inside.instruction_roofline import instructions_of, require_kernels
    from ncu_tools.roofline.instruction_roofline import scene_of_instructions

    placed, drawn = asked.placed, asked.drawn
    require_kernels(asked.runs, {
        "--points": placed.points != KERNELS, "--depth": placed.depth is not None, "--dask": asked.dask is not None,
        "--cache-bytes": placed.cache_bytes != TRAFFIC, "--ceilings": drawn.ceilings != AUTO,
        "--unit": bool(drawn.units), "--label": bool(drawn.labels), "--arrows": drawn.arrows,
    })  # fmt: skip
    result = instructions_of(asked.runs, loading)
    titled = asked.titled(scene_of_instructions(result, asked.style.title or asked.selected))
    return result, titled, write_picture(titled, asked.style) if asked.style.output is not None else []


# ------------------------------------------------------------------------------------------------- what is to be drawn


def _roofline(
    asked: AskedRoofline, machines: Sequence[Machine], wanted: Look, load: Callable[..., Loaded]
) -> tuple[Roofline, list[str], dict[str, str]]:
    """The roofline, notes on reading the runs, and the models of the runs. `load` loads one."""
    from ncu_tools.cli.reading.runs_of_roofline import load_runs, look_at
    from ncu_tools.roofline import roofline as model

    runs = asked.runs
    if not runs:
        return (model.of_machine(machines[0]) if len(machines) == 1 else model.of_machines(machines)), [], {}
    own = machines[0] if len(machines) == 1 else None
    look = look_at(runs, wanted)
    with engine_of(asked.dask) as engine, progress("Reading") as reading:
        load = partial(load, look=look, machine=own, reading=reading, engine=engine)
        loaded = load_runs(runs, load, only=asked.only)
    notes = list(dict.fromkeys(note for run in loaded for note in run.notes))
    if wanted.view not in (look.view, KERNELS):
        notes.append(f"--points {wanted.view} is ignored: with a sweep, every point is a whole run")
    summed = {run.name: run.points for run in loaded if run.points is not None}
    result = model.roofline({run.name: run.table for run in loaded}, own, look=look, summed=summed)
    if len(machines) > 1:
        model.add_machines(result, machines)
        notes.append("the machines' ceilings are drawn besides the runs' own, and bound no points")
    models = {run.name: run.model for run in loaded if run.model is not None}
    if len(runs) == len(loaded) == 1 and loaded[0].is_sampled and (look.view, look.kernels_by) == (KERNELS, "name"):
        notes += _take_sampled_bytes(runs[0], result)
    return result, notes, models


def _take_sampled_bytes(run: str, result: Roofline) -> list[str]:
    """Give kernels the DRAM rates from samples in which they ran nearly alone; and a note on their number."""
    from ncu_parsers.parse.sampled_timeline import read_sampled_timeline

    from ncu_tools.kernels.source.spread.sampled_bytes import bytes_in
    from ncu_tools.timeline.load_activity import sampled_timeline_in

    source = sampled_timeline_in(run)
    result.sampled_bytes = {} if source is None else {
        name: one.bytes_per_s for name, one in bytes_in(read_sampled_timeline(source)).items()
    }  # fmt: skip
    if not result.sampled_bytes:
        return []
    kernels = counted(len(result.sampled_bytes), "kernel", "kernels")
    return [
        f"~FLOP/B is not counted but estimated from samples of the whole GPU, for {kernels} that ran nearly alone in "
        "five samples or more. Points are drawn at FLOP/B"
    ]


def _scene(result: Roofline, drawn: DrawnOptions, title: str, models: dict[str, str]) -> Scene:
    from ncu_tools.roofline.scene_builder import scene_of

    if len(set(drawn.labels)) < len(drawn.labels):
        raise WrongUsage("Two runs have the same label.", advice="Give each run a --label of its own.")
    if drawn.labels and len(drawn.labels) != len(result.runs):
        raise WrongUsage(
            f"There are {len(result.runs)} runs and {len(drawn.labels)} labels.",
            advice="Say --label once for each run; each point of a sweep is one.",
        )
    return scene_of(
        result,
        title=title,
        ceilings=drawn.ceilings,
        units=drawn.units,
        labels=drawn.labels,
        models=models,
        arrows=drawn.arrows,
    )


def _arrow_note(scene: Scene, arrows: bool) -> list[str]:
    if not arrows or scene.arrows:
        return []
    return ["there is nothing to join by an arrow: consecutive runs have no point in common"]


# --------------------------------------------------------------------------------------------------------- the table


def _table(result: Roofline, scene: Scene, notes: list[str], asked: AskedRoofline, look: Look) -> Table:
    """A row for each point."""
    from ncu_tools.kernels.kernel_row import NAMES_OF_KERNELS
    from ncu_tools.roofline.scene_builder import names_of

    output_format = asked.output_format
    names = {id(point): name for point, name in zip(result.points, names_of(result.points), strict=True)}
    points = sorted(result.points, key=lambda point: -(point.hotspot.time_total_ns or 0.0))
    points, hidden = first_rows(points, asked.top, output_format, "point")
    notes = [*hidden, *notes]
    several = len({point.run for point in points}) > 1
    labels = {run.name: run.label for run in scene.runs}
    rows = [
        _cells(point, labels[point.run], result.view, output_format, result.sampled_bytes, several=several)
        for point in points
    ]
    with_numbers(rows, scene, [(point.run, names[id(point)]) for point in points])
    of_kernels = result.density or (look.view in (KERNELS, LAUNCHES) and look.kernels_by in NAMES_OF_KERNELS)
    first = COLUMNS[0]._replace(
        title="kernel" if result.density else result.noun, kind=KERNEL if of_kernels else "text", wide=True
    )
    columns = [first, *(column for column in COLUMNS[1:] if _is_of_a_level(column, result.levels))]
    here = is_drawn_here(asked.style, output_format)
    notes = [*result.notes, *_ceiling_notes(result, output_format, beside_picture=here), *notes]
    extra = _extra(result, scene) if output_format == "json" else {}
    table = Table("roofline", columns, rows, notes, extra, MACHINE_READABLE)
    return with_time_title(table, result.time_title)


def _cells(
    point: Point, label: str, view: str, output_format: str, sampled: Mapping[str, float], *, several: bool
) -> dict[str, Any]:
    """The row of a point; in a view of whole runs the label replaces the name for people."""
    row = {**asdict(point.hotspot), "run": None}
    row |= {f"{place.level}_arithmetic_intensity": place.intensity for place in point.places}
    moved, flops = sampled.get(point.hotspot.kernel), point.hotspot.flops_per_s
    row["sampled_arithmetic_intensity"] = flops / moved if moved and flops is not None else None
    if output_format == "json":
        row["run"] = point.run
    elif view == RUNS and output_format != "csv":
        row["kernel"] = label
    elif several or output_format == "csv":
        row["run"] = label or point.run
    return row


def _bare_table(result: Roofline, notes: list[str], output_format: str) -> Table:
    """The ceilings of machines, one row each, bandwidths and the highest peaks first."""
    from ncu_tools.ceilings.ceilings import unit_title

    ridge_of = {(ridge.device, ridge.unit, ridge.value): ridge.intensity for ridge in result.ridges}
    several = len({ceiling.device for ceiling in result.known}) > 1
    for_people = output_format in ("text", "markdown")
    rows = []
    for ceiling in sorted(result.known, key=lambda one: (one.device, not one.is_bandwidth, -one.value)):
        apart = (unit_title(ceiling.unit), ceiling.instruction, "sparse" * ceiling.sparse)
        rows.append({
            **asdict(ceiling),
            "roof": " ".join(word for word in apart if word),
            "device": ceiling.device if several or not for_people else None,
            "rate": _amount(ceiling),
            "value_unit": ceiling.value_unit,
            "instruction": ceiling.instruction or None,
            "ridge": ridge_of.get((ceiling.device, ceiling.unit, ceiling.value)),
        })  # fmt: skip
    if not for_people:
        return Table("roofline", BARE_MACHINE_READABLE, rows, [*result.notes, *notes])
    integers = any(row["value_unit"] == "OP/s" for row in rows)
    columns = [
        one._replace(title=RIDGE_OF_INTEGERS) if integers and one.name == "ridge" else one for one in BARE_COLUMNS
    ]
    return Table("roofline", columns, rows, [*result.notes, *notes])


def _is_of_a_level(column: Column, levels: tuple[str, ...]) -> bool:
    """True if a column belongs to a shown memory level, or to none."""
    level = column.name.removesuffix("_arithmetic_intensity")
    return level not in LEVELS or level in levels


def _extra(result: Roofline, scene: Scene) -> dict[str, Any]:
    return {
        "ceilings": [
            {**asdict(ceiling), "value_unit": ceiling.value_unit, "drawn": drawn}
            for drawn, ceilings in ((True, result.ceilings), (False, [*result.undrawn, *result.others]))
            for ceiling in ceilings
        ],
        "ridge_points": [asdict(ridge) for ridge in result.ridges],
        "scene": scene.as_json(),
    }


def _ceiling_notes(result: Roofline, output_format: str, *, beside_picture: bool) -> list[str]:
    """The ceilings as notes for CSV, and their sources for a picture in a terminal."""
    from ncu_tools.ceilings.ceilings import unit_title
    from ncu_tools.roofline.roofline import others_beside

    if beside_picture:
        sources: dict[str, dict[str, None]] = {}
        for ceiling in result.ceilings:
            sources.setdefault(ceiling.device, {})[ceiling.source] = None
        return [Note(f"ceilings of {device}: {'; '.join(found)}", NoteKind.METHOD) for device, found in sources.items()]
    if output_format != "csv":  # JSON has them, and text and Markdown print a table of them
        return []
    ridge_of = {(ridge.device, ridge.unit, ridge.value): ridge.intensity for ridge in result.ridges}
    notes = []
    for ceiling in (*result.ceilings, *result.undrawn):
        intensity = ridge_of.get((ceiling.device, ceiling.unit, ceiling.value))
        ridge = f", ridge at {digits(intensity)} FLOP/B" if intensity is not None else ""
        title = f"{unit_title(ceiling.unit)} {ceiling.instruction}".strip()
        beside = others_beside(ceiling, result.others, result.ceilings)
        others = "".join(f"; {apart} {_amount(other)}" for apart, other in beside)
        notes.append(f"{ceiling.device}: {title} {_amount(ceiling)}{ridge} ({ceiling.source}){others}")
    return notes


def _amount(ceiling: Ceiling) -> str:
    return scaled(ceiling.value, "B/s" if ceiling.is_bandwidth else ceiling.value_unit)
