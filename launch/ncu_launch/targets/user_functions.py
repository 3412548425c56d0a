"""A user's function as a target: which sizes it accepts, and calling it with them.

A function accepts a size if one of its arguments has a name listed in `ARGUMENTS`. Planning a sweep reads this from the
source: neither PyTorch nor the user's code is imported in the planning process.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.targets.reference_kernels import is_known_work
from ncu_launch.workload_spec import Workload

ARGUMENTS = {
    "batch": ("batch_size", "batch"),
    "input": ("input_size", "image_size"),
    "sequence": ("seq_len", "sequence_length"),
}
"""Argument names that stand for each size."""

OPTIONS = {"batch": "--batch-size", "input": "--input-size", "sequence": "--seq-len"}
COLUMNS = {"batch": "batch_size", "input": "input_size", "sequence": "sequence_length"}


def is_function(target: str) -> bool:
    """True if a target has the form `file.py:function` or `package.module:function`."""
    return ":" in target and not target.startswith(("hf:", "timm:")) and not is_known_work(target)


def in_any_folder(target: str) -> str:
    """The target with an absolute path to its file, for a process that runs in another folder."""
    place, _, name = target.rpartition(":")
    return f"{Path(place).absolute()}:{name}" if is_function(target) and place.endswith(".py") else target


def sizes_taken(target: str) -> frozenset[str] | None:
    """Which of batch, input and sequence a function accepts, according to its source.

    None if there is no source, if the name is not that of a plain function in it, or if a decorator may have changed
    its arguments.
    """
    place, _, name = target.rpartition(":")
    source = Path(place) if place.endswith(".py") else _source_of(place)
    try:
        tree = ast.parse(source.read_text("utf-8")) if source is not None else None
    except (OSError, SyntaxError, ValueError):
        return None
    found = [node for node in (tree.body if tree else []) if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found or found[-1].decorator_list:
        return None
    arguments = found[-1].args
    return _sizes_among(argument.arg for argument in (*arguments.args, *arguments.kwonlyargs))


def lacks(target: str, size: str, has: Iterable[str] | None = None) -> WrongUsage:
    """The error for a function without an argument for `size`; `has` are its arguments, if known."""
    names = " or ".join(ARGUMENTS[size])
    cause = f"Its arguments are: {', '.join(has) or 'none'}." if has is not None else ""
    advice = f"Give it one, as in def {target.rpartition(':')[2]}({ARGUMENTS[size][0]}), or leave {OPTIONS[size]} out."
    return WrongUsage(f"{target} takes no {OPTIONS[size]}: it has no argument called {names}.", cause, advice)


def called(target: str, workload: Workload) -> tuple[Any, Any, dict[str, int]]:
    """Call a user's function; returns its model, its inputs, and the sizes passed to it, by column name.

    The batch size (default 1) is passed if the function accepts it, other sizes if they were requested. Raises
    `WrongUsage` if the function has no argument for a requested size, requires one that was not requested, or returns
    anything but a model and its inputs.
    """
    function = _function(target)
    arguments = _arguments(function)
    asked = {"batch": workload.batch_size, "input": workload.input_size, "sequence": workload.sequence_length}
    given: dict[str, Any] = {}
    taken: dict[str, int] = {}
    for size, value in asked.items():
        names = [name for name in ARGUMENTS[size] if name in arguments]
        if not names and value is not None and (size, value) != ("batch", 1):
            raise lacks(target, size, arguments)
        if names and value is not None:
            given |= dict.fromkeys(names, value)
            taken[COLUMNS[size]] = value
    _check_the_rest(target, [name for name, needed in arguments.items() if needed and name not in given])
    model, inputs = _model_and_inputs(target, function(**given))
    return model, inputs, taken


def _sizes_among(arguments: Iterable[str]) -> frozenset[str]:
    known = set(arguments)
    return frozenset(size for size, names in ARGUMENTS.items() if known & set(names))


def _arguments(function: Any) -> dict[str, bool]:
    """Arguments that can be passed by name, and whether each is required."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C have no signature
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one.name: one.default is inspect.Parameter.empty for one in parameters if one.kind in by_name}


def _check_the_rest(target: str, needed: list[str]) -> None:
    for name in needed:
        option = next((OPTIONS[size] for size, names in ARGUMENTS.items() if name in names), None)
        advice = f"Say {option}." if option else "Give it a default: only sizes can be passed."
        raise WrongUsage(f"{target} needs a value for {name}.", advice=advice)


def _model_and_inputs(target: str, made: Any) -> tuple[Any, Any]:
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0])):
        raise WrongUsage(
            f"{target} returned {type(made).__name__}, not a model and its inputs.",
            advice="Return (model, inputs), with inputs a tensor, a tuple of arguments or a dict of keyword arguments.",
        )
    return made


# ------------------------------------------------------------------------------------------------- finding the function


def _function(target: str) -> Any:
    _import_from_current_folder()
    place, _, name = target.rpartition(":")
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module(place)
    function = getattr(module, name, None)
    if not callable(function):
        raise WrongUsage(f"{place} has no function called {name}.", advice="Write it as FILE.py:FUNCTION.")
    return function


def _import_from_current_folder() -> None:
    """Make imports search the current folder first, as `python -m` does, for the user's modules.

    `subprocesses.OWN_PYTHON` keeps it off the path until our own imports are done, so that no file there replaces them.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _module_of_file(path: Path) -> Any:
    if not path.is_file():
        raise NcuBenchError(
            f"{path} does not exist.", advice="Check the path; relative paths start at the current folder."
        )
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise NcuBenchError(f"{path} could not be imported as Python.")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NcuBenchError(
            f"The module {name} could not be imported: {error}.", advice="Check its name and PYTHONPATH."
        ) from error


def _source_of(module: str) -> Path | None:
    """The source file of a module, as a process in the current folder would find it; None if there is none."""
    first, *others = module.split(".")
    found = PathFinder.find_spec(first, [str(Path.cwd()), *sys.path])
    if found is None or found.origin is None:
        return None
    if not others:
        return Path(found.origin)
    inside = Path(found.origin).parent.joinpath(*others)
    return next((file for file in (inside.with_suffix(".py"), inside / "__init__.py") if file.is_file()), None)
