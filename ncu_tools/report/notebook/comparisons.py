"""Two runs compared, and models estimated on machines, as tables in a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from ncu_launch.targets.language.settings import check
from ncu_launch.targets.reference_kernels import default_phases, own_dtype
from ncu_launch.workload.meta_device_process import expectations_of
from ncu_launch.workload_spec import Workload

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.compare.compare_kernels import ComparedKernel, NotComparable, compare, require_comparable
from ncu_tools.compare.comparison_sums import signature_sums_of_run
from ncu_tools.compare.run_conditions import conditions_of
from ncu_tools.kernels.names.distinct_names import distinct_names
from ncu_tools.model.expected.estimate import estimates, one_by_one
from ncu_tools.numbers.change import verdict, verdict_text
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.head import manifest_of
from ncu_tools.report.notebook.views import TableView
from ncu_tools.report.table import Table
from ncu_tools.runs.run import Run

COMPARED = (
    column("kernel", kind="text", wide=True),
    *columns("base_launches~2 new_launches~2 base_time_ns new_time_ns pairs.changed verdict"),
)
ESTIMATED = columns(
    "target batch_size dtype phase parameters flops bytes_model arithmetic_intensity machine time_model_ns bound failed"
)
ROWS_SHOWN = 20
PER_LAUNCH = "times are means per launch; the last row is the sum over all kernels"
NOT_RUN = "nothing was run: times are the least that FLOPs and bytes allow"


def compared(base: Run, new: Run, *, anyway: bool) -> TableView:
    """The kernels of two runs, largest effect on the run first. Raises `NcuBenchError` for unlike conditions."""
    sums = signature_sums_of_run(base), signature_sums_of_run(new)
    conditions = (
        conditions_of(sums[0].observed, manifest_of(base.name)),
        conditions_of(sums[1].observed, manifest_of(new.name)),
    )
    if not anyway:
        try:
            require_comparable(*conditions, (base.name, new.name))
        except NotComparable as error:
            raise NotComparable(error.what, error.cause, "To compare them all the same: anyway=True.") from None
    found = compare(*sums, conditions, sums_anyway=anyway)
    rows = [_row(kernel) for kernel in (*found.kernels, found.total)]
    names = distinct_names([str(row["kernel"]) for row in rows[:-1]])
    rows_shown = rows if len(rows) <= ROWS_SHOWN else [*rows[: ROWS_SHOWN - 1], rows[-1]]
    shown = [{**row, "kernel": names.get(str(row["kernel"]), row["kernel"])} for row in rows_shown]
    left = len(rows) - len(shown)
    notes = [*([f"{left:,} more kernel{'s' * (left > 1)} in .table"] if left else []), PER_LAUNCH, *found.notes]
    return TableView(rows, Table("compare", COMPARED, shown, list(dict.fromkeys(notes))))


def _row(kernel: ComparedKernel) -> dict[str, object]:
    time, launches = kernel.changes["time"], kernel.changes["launches"]
    cells: dict[str, object] = {
        "kernel": kernel.pair.kernel,
        "base_launches": _rounded(launches.base),
        "new_launches": _rounded(launches.new),
        "base_time_ns": time.base,
        "new_time_ns": time.new,
        "growth": time.growth,
        "low": time.low,
        "high": time.high,
        "changed": verdict_text(time),
        "verdict": verdict(time, is_new=kernel.is_new, is_gone=kernel.is_gone),
    }
    if kernel.is_new or kernel.is_gone:  # it has no time in the run that lacks it, and no change
        side = "base" if kernel.is_new else "new"
        cells |= dict.fromkeys((f"{side}_launches", f"{side}_time_ns", "growth", "low", "high", "changed"))
    return cells


def _rounded(count: float | None) -> int | None:
    return None if count is None else round(count)


def estimated(
    targets: Sequence[str],
    machines: Sequence[Machine],
    *,
    batch_sizes: Sequence[int],
    dtypes: Sequence[str],
    phases: Sequence[str],
    input_size: int | None,
    sequence_length: int | None,
    unit: str | None,
) -> TableView:
    """FLOPs, bytes and least times of models on machines, a row for each phase. Raises `WrongUsage`."""
    asked = tuple(phases)
    workloads = [
        workload
        for target in targets
        for dtype in dtypes
        for batch in batch_sizes
        for one in one_by_one(
            Workload(
                target, batch, input_size, sequence_length, own_dtype(target) or dtype,
                phases=asked or default_phases(target), device="cpu", phases_are_defaults=not asked,
            )
        )
        for workload in [check(one, asked)]
    ]  # fmt: skip
    rows = [row.cells() for row in estimates(workloads, expectations_of(workloads), machines, unit)]
    return TableView(rows, Table("estimate", ESTIMATED, rows, [NOT_RUN]))
