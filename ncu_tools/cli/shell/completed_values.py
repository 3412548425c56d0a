"""Values of options and arguments for completion: machines, chips, groups, models, kernels, files.

An option has the same values on every command. No heavy module is imported and no report is read: kernels are completed
from a Parquet run named earlier in the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Values = Callable[[click.Context], Iterable[str]]
"""A function that finds values; a mapping has values as keys, each with a description."""

LARGEST_RUN = 200_000_000
"""Bytes of the biggest Parquet file whose kernels are read for a completion, so that it takes less than a second."""

PLAIN = re.compile(r"[\w.:/@%-]+")
"""Names that need no quotes in a shell; other names are not completed."""


def _machines(context: click.Context) -> Iterable[str]:
    from ncu_tools.ceilings.machine_files import machines

    return machines()


def _machines_or_measure(context: click.Context) -> Iterable[str]:
    return (*_machines(context), "measure")


def _chips(context: click.Context) -> Iterable[str]:
    from ncu_launch.counters.chips import chips

    return (chip.name.lower() for chip in chips())


def _groups(context: click.Context) -> Iterable[str]:
    from ncu_launch.counters.metric_groups import group_names

    return group_names()


def _models(context: click.Context) -> Iterable[str]:
    """Names of models that can be built, found in the libraries' sources, which are not imported."""
    from ncu_launch.targets.model_name_check import torchvision_names_unloaded
    from ncu_launch.targets.models import HF_CONFIGURATIONS
    from ncu_launch.targets.reference_kernels import SUITES

    return (*torchvision_names_unloaded(), *(f"hf:{name}" for name in HF_CONFIGURATIONS), *SUITES)


def _units(context: click.Context) -> Iterable[str]:
    from ncu_tools.ceilings.machine_files import COMPUTE_UNITS

    return COMPUTE_UNITS


def _engines(context: click.Context) -> Iterable[str]:
    return ("local",)


def _kernels(context: click.Context) -> Iterable[str]:
    """Functions of the kernels in the runs named earlier in the line, if these are Parquet.

    Each is described by its kernels' purpose.
    """
    import numpy as np
    from ncu_parsers.parquet.reader import read_launches
    from ncu_parsers.schema.tables import codes

    from ncu_tools.kernels.names.readable_names import readable_name
    from ncu_tools.report.table import printable

    found: dict[str, dict[str, None]] = {}
    for file in _parquet_of(context):
        launches = read_launches(file, ["kernel_short", "kernel_name"])
        (of_functions, functions), (of_names, names) = (codes(launches, name) for name in launches.column_names)
        for function, name in np.unique(np.stack([of_functions, of_names]), axis=1).T.tolist():
            if functions[function]:
                found.setdefault(functions[function] or "", {})[readable_name(names[name] or "?")] = None
    return {function: printable(", ".join(names)) for function, names in found.items()}


def _parquet_of(context: click.Context) -> Iterable[Path]:
    """The files of launches named by the arguments in the line."""
    from ncu_launch.files.run_files import LAUNCHES

    for name in _arguments(context):
        path = Path(name)
        file = path / LAUNCHES if path.is_dir() else path
        if file.suffix == ".parquet" and file.is_file() and file.stat().st_size <= LARGEST_RUN:
            yield file


def _arguments(context: click.Context) -> list[str]:
    """The arguments of an incomplete line: after an option without its value, click leaves them unparsed."""
    found: list[Any] = list(context.args)
    for one in context.command.params:
        value = context.params.get(one.name or "") if isinstance(one, click.Argument) else None
        found += value if isinstance(value, tuple) else [value]
    return [name for name in found if isinstance(name, str) and name]


VALUES: dict[str, Values] = {
    "--machine": _machines, "machines name": _machines_or_measure,
    "--chip": _chips,
    "--metrics": _groups,
    "profile target": _models, "estimate targets": _models, "bench targets": _models, "--target": _models,
    "--kernel": _kernels, "kernel name": _kernels,
    "--unit": _units,
    "--dask": _engines,
}  # fmt: skip
"""Option, or command and argument -> its values. click's choices have their own, and every other argument is a file."""

NO_PATHS = ("query sql",)
"""Arguments that are neither files nor from a list."""

TEXTS = (type(click.STRING), type(click.UNPROCESSED))
PATHS = ("PATH", "FILE", "DIR", "TRACE", "FILE.toml")
"""Metavars of options that name a file."""


class Completed(click.types.StringParamType):
    """A text completed from `values`, or as a file if None. After a comma the next list item is completed."""

    def __init__(self, values: Values | None) -> None:
        self.values = values

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
        """The values that begin with the typed text; none if they cannot be found."""
        if self.values is None:
            return [CompletionItem(incomplete, type="file")]
        before, comma, begun = incomplete.rpartition(",")
        taken = set(before.split(","))
        try:
            known = self.values(ctx)
            values = [value for value in known if value.lower().startswith(begun.lower())]
        except Exception:  # an incomplete line: the command itself will report what is wrong
            return []
        about = known if isinstance(known, Mapping) else {}
        return [
            CompletionItem(before + comma + value, help=about.get(value))
            for value in values
            if value not in taken and PLAIN.fullmatch(value)
        ]


def with_completed_values(command: click.Command, name: str) -> click.Command:
    """The command called `name`, with completion for its options and arguments.

    Only for completion, because it replaces their types.
    """
    for parameter in command.params:
        if not isinstance(parameter.type, TEXTS):
            continue
        if isinstance(parameter, click.Option):
            values = next((VALUES[option] for option in parameter.opts if option in VALUES), None)
            is_path = parameter.metavar in PATHS
        else:
            values = VALUES.get(f"{name} {parameter.name}")
            is_path = f"{name} {parameter.name}" not in NO_PATHS
        if values is not None or is_path:
            parameter.type = Completed(values)
    return command
