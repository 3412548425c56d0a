"""`ncu_tools.kernel`: a function with the argument values at which it is profiled. See docs/python.md.

`import ncu_tools` imports this module, so everything heavy is imported where it is used.
"""

from __future__ import annotations

import functools
import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncu_launch.errors import WrongUsage

from ncu_tools.numbers.number_format import counted
from ncu_tools.profiling.from_python import load

if TYPE_CHECKING:
    import pandas

    from ncu_tools.report.notebook.profiled_run import ProfiledRun

ROWS_SHOWN = 20
INSIDE = "NCU_BENCH_PROFILED_BY_PYTHON"
"""Environment variable in the processes that run the points: they import the file that started them."""


def kernel(vary: Mapping[str, Sequence[Any]]) -> Callable[[Callable[..., Any]], VariedKernel]:
    """Decorate a function so that its `profile` method runs it at every combination of these argument values.

    Raises `WrongUsage` for an argument that the function does not have.
    """
    return lambda function: VariedKernel(function, vary)


class VariedKernel:
    """A function, callable as before, with the points at which `profile` profiles it."""

    def __init__(self, function: Callable[..., Any], vary: Mapping[str, Sequence[Any]]) -> None:
        from ncu_launch.targets.function_arguments import arguments_of, require_names

        require_names(function.__name__, vary, arguments_of(function), "vary")
        functools.update_wrapper(self, function)
        self._function, self._vary = function, vary

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the function."""
        return self._function(*args, **keywords)

    def profile(
        self, *, metrics: Sequence[str] = ("flops", "dram"), output: str | os.PathLike[str] | None = None,
        tool: str = "auto", device: str = "auto",
    ) -> ProfiledKernel:  # fmt: skip
        """Profile every point in a separate process, as `ncu-bench profile FILE.py:FUNCTION --vary`.

        Raises `WrongUsage` if the function is not in a file, or if the file profiles it whenever it is imported.
        """
        from ncu_launch.profile.plan import Request
        from ncu_launch.workload_spec import Workload

        from ncu_tools.profiling.listener import Listener
        from ncu_tools.profiling.profile_request import ProfileRequest
        from ncu_tools.profiling.varied_profile import profile_points, varied_points

        target = self._target()
        names = tuple(self._vary)
        variants = [tuple(zip(names, map(str, each), strict=True)) for each in product(*self._vary.values())]
        workload = Workload(target, device=device, phases=())
        run = Request(("ncu_tools.kernel", target), tuple(metrics), workload, (), tool=tool)
        request = ProfileRequest(run, Path(output) if output is not None else None)
        os.environ[INSIDE] = "1"
        try:
            found = profile_points(request, varied_points(workload, variants), Listener())
        finally:
            del os.environ[INSIDE]
        return ProfiledKernel(found.folder, found.notes)

    def _target(self) -> str:
        file, name = Path(self._function.__code__.co_filename), self._function.__name__
        if not file.is_file() or "<locals>" in self._function.__qualname__:
            raise WrongUsage(
                f"{name} is not at the top level of a file.",
                "Each point runs in a process of its own, which imports the function.",
                "Write it to one and import it from there; in a notebook: %%writefile kernels.py",
            )
        if os.environ.get(INSIDE):
            raise WrongUsage(
                f"{file} profiles {name} whenever it is imported, as each point does.",
                advice='Put the profiling code under: if __name__ == "__main__":',
            )
        return f"{file}:{name}"


@dataclass(frozen=True, repr=False)
class ProfiledKernel:
    """The points of a profile in `folder`, which every command accepts too, and notes on collecting them."""

    folder: Path
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        table = self.table
        return f"{self.folder}: {counted(len(table), 'point', 'points')}\n{table.to_string(max_rows=ROWS_SHOWN)}"

    def _repr_html_(self) -> str:
        table = self.table
        head = html.escape(f"{self.folder}: {counted(len(table), 'point', 'points')}")
        return f"<p><b>{head}</b></p>{table.to_html(max_rows=ROWS_SHOWN)}"

    @property
    def table(self) -> pandas.DataFrame:
        """A row per point: varied values, launches, time, FLOPs, bytes, the counting tool, or why it failed."""
        from ncu_launch.files.run_files import POINTS_FILE
        from ncu_parsers.parquet.reader import read_bench

        found: pandas.DataFrame = read_bench(self.folder / POINTS_FILE).to_pandas()
        return found.dropna(axis="columns", how="all")

    def point(self, **values: Any) -> ProfiledRun:
        """One point with its tables and views, by varied values: `point(n=512)`.

        Raises `WrongUsage` if none or several have these values.
        """
        rows = self.table.to_dict("records")
        found = [row for row in rows if all(str(row.get(name)) == str(value) for name, value in values.items())]
        if len(found) != 1:
            there = ", ".join(str(row["profile"]) for row in found or rows)
            raise WrongUsage(f"{len(found)} points have {values}.", f"Points are: {there}.", "Name the values of one.")
        return load(self.folder / str(found[0]["profile"]))
