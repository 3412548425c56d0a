"""A run in a notebook: pandas tables, and views that render themselves. Documented in docs/python.md."""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.schema import tables
from ncu_parsers.timelines.activity.activity import Window

from ncu_tools.advice.advice_on_rows import advice_on_rows
from ncu_tools.advice.code_of_run import instructions_for_levers
from ncu_tools.advice.lever_sentences import advice_in_words
from ncu_tools.ceilings.ceilings import Ceilings, ceilings_of
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.kernels.grouping import UNKNOWN_DEVICE
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import GROUPS, ORDERS, Hotspots, kernels_table, run_total
from ncu_tools.kernels.operator_times import time_title
from ncu_tools.kernels.source.hot_places import MEASURE_OF, VIEWS, hottest
from ncu_tools.kernels.source.kernel_code import kernel_code
from ncu_tools.kernels.source.load_instructions import RunInstructions, load_instructions
from ncu_tools.kernels.source.source_text import source_text
from ncu_tools.model.layers.layers import layers, layers_table, why_no_layers
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.report.notebook.views import (
    Listing,
    Picture,
    SourceView,
    TableView,
    TimelineView,
    html_of_kernels,
    listing_of_kernels,
    text_of_kernels,
)
from ncu_tools.report.plot.layer_bars import draw_bars
from ncu_tools.report.plot.roofline_plot import draw
from ncu_tools.report.source_table import about, row_of, stall_notes, text_notes, view_to_show, what_to_rank_by
from ncu_tools.roofline.roofline import Look, roofline
from ncu_tools.runs.run import Run
from ncu_tools.runs.selection import pattern_of
from ncu_tools.timeline.load_activity import load_activity, load_power
from ncu_tools.timeline.timeline import timeline

if TYPE_CHECKING:
    import pandas

BARS_SHOWN, LEVERS_SHOWN = 20, 8
KERNELS_OF_A_RUN = 5
"""Number of kernels in the view of a run."""
NS_PER_S = 1e9


class ProfiledRun:
    """One run. `launches`, `kernels` and `instructions` are pandas tables; the views render themselves.

    Missing is NaN or NA, never 0. `notes` are remarks on collecting and reading it. The tables are copies, which may be
    changed. `folder` is the run folder that `ncu_tools.profile` wrote, None for a loaded run.
    """

    def __init__(self, run: Run, machine: Machine | None) -> None:
        self.name = run.name
        self.folder: Path | None = None
        self.notes = list(run.notes)
        self._table = run.table
        self._machine = machine

    def __repr__(self) -> str:
        found = self._hotspots
        return "\n".join([self._head, text_of_kernels(found, KERNELS_OF_A_RUN), *self._further_views(found)])

    def _repr_html_(self) -> str:
        found = self._hotspots
        table = html_of_kernels(found, KERNELS_OF_A_RUN)
        below = "".join(f"<p>{html.escape(line)}</p>" for line in self._further_views(found))
        return f"<p><b>{html.escape(self._head)}</b></p>{table}{below}"

    @property
    def _head(self) -> str:
        """The head of the run: its name, devices, launches and time."""
        devices = dict.fromkeys(row.device or UNKNOWN_DEVICE for row in self._hotspots.rows)
        whole = run_total(self._hotspots.rows).time_total_ns
        kernels = len({row.kernel for row in self._hotspots.rows})
        parts = [
            ", ".join(devices) or UNKNOWN_DEVICE,
            counted(int(tables.launch_counts(self._table).sum()), "launch", "launches"),
            *([] if whole is None else [f"{duration(whole)} in {counted(kernels, 'kernel', 'kernels')}"]),
        ]
        return f"{self.name}: {'; '.join(parts)}"

    def _further_views(self, found: Hotspots) -> list[str]:
        """Notes on further views."""
        left = len(found.rows) - KERNELS_OF_A_RUN
        hidden = [f"{counted(left, 'more kernel', 'more kernels')}: .hotspots()"] if left > 0 else []
        return [*hidden, "views: .hotspots() .advise() .roofline() .layers() .timeline() .source() .compare(other)"]

    @cached_property
    def _hotspots(self) -> Hotspots:
        return hotspots(self._table, self._ceilings)

    @property
    def launches(self) -> pandas.DataFrame:
        """A row per launch: the columns of docs/dev/architecture.md, then every metric of the report, in base units."""
        return _frame(self._table)

    @property
    def kernels(self) -> pandas.DataFrame:
        """A row per kernel name, by time, longest first. Times in ns, rates per second of GPU time."""
        return _frame(kernels_table(hotspots(self._table, self._ceilings).rows))

    @property
    def instructions(self) -> pandas.DataFrame:
        """A row per instruction and launch: the columns of docs/source.md.

        Raises `NcuBenchError` for a run without counts per instruction, saying what to collect.
        """
        return _frame(self._instructions.table)

    def source(
        self,
        kernel: str | None = None,
        *,
        view: str | None = None,
        by: str | None = None,
        top: int = BARS_SHOWN,
        launch: int | None = None,
        source_root: str | os.PathLike[str] | None = None,
    ) -> SourceView:
        """The hottest lines of a kernel with their stalls, as `ncu-bench source`; `table` has all, `top` are shown.

        `kernel` is a regular expression; the default is the kernel with the most samples. `view` is lines, sass, ptx or
        functions, `by` samples, executed, sectors or conflicts. Raises `WrongUsage` for other values and for
        uncollected ones, and `NcuBenchError` for a run without counts per instruction and for an unknown kernel.
        """
        if view is not None:
            _require_one_of("view", view, VIEWS)
        if by is not None:
            _require_one_of("by", by, MEASURE_OF)
        _require_not_below_zero("top", top)
        loaded = self._instructions
        code = kernel_code(loaded.table, [] if kernel is None else [pattern_of(kernel)], launch)
        by, by_notes = what_to_rank_by(code, by)
        view, view_notes = view_to_show(code, view)
        places, _ = hottest(code, view, by, None)
        files = [place.file for place in places if place.file]
        root = None if source_root is None else Path(source_root)
        text = source_text(files, loaded.files, root, loaded.sizes)
        rows = [row_of(place, text) for place in places]
        hidden = len(rows) - len(rows[:top])
        more = [f"{hidden:,} more place{'s' * (hidden > 1)} in .table"] if hidden else []
        notes = [
            about(code),
            *by_notes,
            *stall_notes(code),
            *text_notes(places),
            *view_notes,
            *more,
            *text.notes,
            *loaded.notes,
        ]
        return SourceView(rows, rows[:top], notes)

    def hotspots(
        self, *, by: str = "time", top: int = BARS_SHOWN, group: str = "name", diagnose: bool = False
    ) -> Listing:
        """The hottest kernels, with their bounds; `table` has all of them, `top` are shown.

        `by` is time, headroom, flops or dram; `group` is name, short, grid, nvtx, operator, category, location,
        report or device;
        `diagnose` adds a sentence on the levers that save a kernel's time. Raises `WrongUsage` for other values.
        """
        _require_one_of("by", by, ORDERS)
        _require_one_of("group", group, GROUPS)
        _require_not_below_zero("top", top)
        found = hotspots(self._table, self._ceilings, by=by, group=group)
        table = _frame(kernels_table(found.rows))
        advised = advice_on_rows(self._table, found.rows, group, self._code) if diagnose else {}
        sentences = {kernel: advice_in_words(one) for kernel, one in advised.items()}
        if diagnose:
            table["diagnosis"] = [sentences.get(row.key) for row in found.rows]
        return listing_of_kernels(found, table, top, sentences, self.notes, group)

    def advise(self, *, top: int = LEVERS_SHOWN) -> TableView:
        """What can be done about the run's time and what it saves, as `ncu-bench advise`: a row a lever in `table`.

        Levers are of kernels, or of steps if the run is a recording; `top` are shown. Savings are shares of the
        kernel's or step's time, with the ends of their interval, and ns.
        """
        from ncu_tools.report.notebook.run_advice import advice_on_run

        _require_not_below_zero("top", top)
        return advice_on_run(self._table, self._code, os.fspath(self.folder or self.name), self._machine, top)

    def roofline(self, *others: ProfiledRun, group: str = "name", title: str = "") -> Picture:
        """Every kernel of this run, and of `others`, under the ceilings of its machine: from its report, else the
        machine with which its run was loaded. `group` is as in `hotspots`."""
        import pandas

        _require_one_of("group", group, GROUPS)
        _require_runs(*others)
        named = dict(zip(_unique_names([self, *others]), (self, *others), strict=True))
        runs = {name: run._table for name, run in named.items()}
        machines = {name: run._machine for name, run in named.items()}
        found = roofline(runs, machines=machines, look=Look(group=group))
        by_run = {name: [point.hotspot for point in found.points if point.run == name] for name in runs}
        frames = [_frame(kernels_table(rows)).assign(run=name) for name, rows in by_run.items()]
        table = pandas.concat(frames, ignore_index=True)
        return Picture("roofline", table, lambda kind: draw(found, kind, title=title), found.notes)

    def layers(self, *, depth: int | None = None, title: str = "") -> Picture:
        """The layers of the model as bars: time of each phase, FLOPs, bytes; `table` is the whole tree.

        `depth` is the deepest level of layers, counted from the model. Raises `NcuBenchError` for a run whose launches
        have no modules.
        """
        _require_not_below_zero("depth", depth)
        found = layers(self._table, depth=depth)
        if not found.rows:
            raise NcuBenchError(f"{self.name} has no layers.", why_no_layers(found.notes))

        def drawn(kind: str) -> bytes:
            times = time_title(found.clocks)
            return draw_bars(found.deepest, kind, title=title, bytes_title=found.bytes_title, time_title=times)

        return Picture("layers", _frame(layers_table(found.rows)), drawn, found.notes)

    def compare(self, new: ProfiledRun, *, anyway: bool = False) -> TableView:
        """Changes from this run to `new`, kernel by kernel, as `ncu-bench compare`; `table` has all kernels.

        Raises `NcuBenchError` if their conditions differ, unless `anyway`.
        """
        from ncu_tools.report.notebook.comparisons import compared  # imports modules that run models

        _require_runs(new)
        runs = [Run.held(one.name, one._table, one.notes) for one in (self, new)]
        return compared(runs[0], runs[1], anyway=anyway)

    def timeline(self, *, step: str | None = None, trim: tuple[float, float] | None = None) -> TimelineView:
        """Time analysis of a recording on each GPU, as `ncu-bench timeline`; `table` has the steps.

        `step` is a regular expression for the ranges that are steps, `trim` a start and an end in seconds. Raises
        `NcuBenchError` for a run without times of a timeline or without GPU work, `WrongUsage` for missing steps or
        times.
        """
        between = None if trim is None else Window(round(trim[0] * NS_PER_S), round(trim[1] * NS_PER_S))
        path, wanted = os.fspath(self.folder or self.name), None if step is None else pattern_of(step, "step")
        activity = load_activity(path, trim=between)
        return TimelineView(
            timeline(activity, step=wanted, trim=between, machine=self._machine, power=load_power(path))
        )

    @cached_property
    def _instructions(self) -> RunInstructions:
        return load_instructions(os.fspath(self.folder or self.name))

    @property
    def _code(self) -> pa.Table | None:
        return instructions_for_levers(os.fspath(self.folder or self.name), self._table.column_names)[0]

    @cached_property
    def _ceilings(self) -> Ceilings:
        return ceilings_of(self._table, self._machine)


def _unique_names(runs: Sequence[ProfiledRun]) -> list[str]:
    """The names of runs, with a number appended to each repeated one."""
    seen: Counter[str] = Counter()
    names = []
    for run in runs:
        seen[run.name] += 1
        names.append(run.name if seen[run.name] == 1 else f"{run.name} ({seen[run.name]})")
    return names


def _frame(table: pa.Table) -> pandas.DataFrame:
    """An Arrow table in pandas: integers stay integers if some are missing, dictionaries become texts."""
    import pandas

    whole = {
        pa.int32(): pandas.Int32Dtype(), pa.int64(): pandas.Int64Dtype(),
    }  # fmt: skip
    plain = pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in table.schema
        ]
    )
    frame: pandas.DataFrame = table.cast(plain).to_pandas(types_mapper=whole.get)
    return frame


def _require_one_of(option: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise WrongUsage(f"{option}={value!r} is not known.", advice=f"Use one of: {', '.join(known)}.")


def _require_runs(*others: object) -> None:
    for other in others:
        if not isinstance(other, ProfiledRun):
            raise WrongUsage(f"{other!r} is not a run.", advice=f"Load it first: ncu_tools.load({other!r})")


def _require_not_below_zero(option: str, value: int | None) -> None:
    if value is not None and value < 0:
        raise WrongUsage(f"{option}={value} is too small.", advice="The least is 0.")
