"""A user's function as a target: its kind, the values of its arguments, and its inputs.

Its result decides the kind: a model with its inputs, a module or callable without them, or anything else, in which case
the function itself is the work. `make_inputs` in the same file makes missing inputs.

A function accepts a size if one of its arguments has a name listed in `ARGUMENTS`. Planning a sweep reads this from the
source: neither PyTorch nor the user's code is imported in the planning process.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError, WrongUsage, near_names
from ncu_launch.targets.function_arguments import Argument, arguments_of, dtype_of, takes, values_of
from ncu_launch.targets.reference_kernels import is_known_work
from ncu_launch.workload_spec import Workload

ARGUMENTS = {
    "batch": ("batch_size", "batch"),
    "input": ("input_size", "image_size"),
    "sequence": ("seq_len", "sequence_length"),
}
"""Size -> names of arguments that receive it."""

MAKER = "make_inputs"
"""The function that returns the inputs of the other functions in its file: a tensor, a tuple, or a dict of keywords."""

OPTIONS = {"batch": "--batch-size", "input": "--input-size", "sequence": "--seq-len"}
COLUMNS = {"batch": "batch_size", "input": "input_size", "sequence": "sequence_length"}


def is_function(target: str) -> bool:
    """True if a target has the form `file.py:function` or `package.module:function`."""
    return ":" in target and not target.startswith(("hf:", "timm:")) and not is_known_work(target)


def in_any_folder(target: str) -> str:
    """The target with an absolute path to its file, for a process that runs in another folder."""
    place, _, name = target.rpartition(":")
    return f"{Path(place).absolute()}:{name}" if is_function(target) and place.endswith(".py") else target


def accepted_sizes(target: str) -> frozenset[str] | None:
    """Which of batch, input and sequence a function, or `make_inputs` beside it, accepts, according to its source.

    None if the source does not show it.
    """
    written = _arguments_written(target)
    return None if written is None else _sizes_among(name for each in written for name in each)


def refuse_unknown_arguments(target: str, names: Iterable[str], reference: str | None = None) -> None:
    """Raise `WrongUsage` for an argument name that neither a function nor `make_inputs` beside it has.

    Nothing is refused if the source does not show the arguments. An argument may also belong to `reference` alone.
    """
    if not is_function(target) or not (names := list(names)):
        return
    written = [_arguments_written(one) for one in (target, reference) if one is not None]
    if any(each is None for each in written):
        return
    own = written[0] or []
    known = {name for each in written for arguments in each or () for name in arguments}
    for name in names:
        if name not in known:
            near = near_names(name, list(known), most=1)
            beside = f" {MAKER} in the same file takes: {', '.join(own[1].values())}." if own[1:] and own[1] else ""
            raise WrongUsage(
                f"{target} has no argument called {name}." + (f" Did you mean {near[0]}?" if near else ""),
                f"Its arguments are: {', '.join(own[0].values()) or 'none'}.{beside}",
                "Name one of these with --arg or --vary.",
            )


def _arguments_written(target: str) -> list[dict[str, str]] | None:
    """The arguments of a function, and of `make_inputs` beside it, by name as written in the source: "n: int = 64".

    None if there is no source, if a name is not a plain function in it, or if a decorator may have changed its
    arguments.
    """
    place, _, name = target.rpartition(":")
    source = Path(place) if place.endswith(".py") else _source_of(place)
    try:
        tree = ast.parse(source.read_text("utf-8")) if source is not None else None
    except (OSError, SyntaxError, ValueError):
        return None
    functions = [node for node in (tree.body if tree else []) if isinstance(node, ast.FunctionDef)]
    found = [node for node in functions if node.name == name]
    makers = [node for node in functions if node.name == MAKER]
    both = [*found[-1:], *makers[-1:]]
    if not found or any(node.decorator_list for node in both) or (tree and _names_bound(tree) & {name, MAKER, "*"}):
        return None
    return [_as_written(node.args) for node in both]


def _names_bound(tree: ast.Module) -> set[str]:
    """The names bound by imports and assignments anywhere in a file."""
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {one.asname or one.name for node in imports for one in node.names}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _as_written(arguments: ast.arguments) -> dict[str, str]:
    places = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(places) - len(arguments.defaults)) + arguments.defaults
    every = [*zip(places, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return {
        one.arg: ast.unparse(ast.arg(one.arg, one.annotation)) + (f" = {ast.unparse(default)}" if default else "")
        for one, default in every[len(arguments.posonlyargs) :]
    }


def lacks(target: str, size: str, has: Iterable[str] | None = None) -> WrongUsage:
    """The error for a function without an argument for `size`; `has` are its arguments, if known."""
    names = " or ".join(ARGUMENTS[size])
    cause = f"Its arguments are: {', '.join(has) or 'none'}." if has is not None else ""
    advice = f"Give it one, as in def {target.rpartition(':')[2]}({ARGUMENTS[size][0]}), or leave {OPTIONS[size]} out."
    return WrongUsage(f"{target} takes no {OPTIONS[size]}: it has no argument called {names}.", cause, advice)


@dataclass
class CalledFunction:
    """A user's function after its call: a model, or another callable, with its inputs.

    `sizes` are the sizes passed to it, by column of the table of measured points. `is_model` is False without a module:
    then nothing is trained, and inputs keep their types. `takes_dtype` is True if an argument sets these types. `note`
    describes the kind.
    """

    work: Callable[..., Any]
    inputs: Any
    sizes: dict[str, int]
    is_model: bool
    note: str = ""
    takes_dtype: bool = False


def called(target: str, workload: Workload, device: str) -> CalledFunction:
    """Call a user's function as far as needed to find its kind.

    The function, and `make_inputs` beside it, receive values for the arguments that they have: the batch size (default
    1), other requested sizes, the workload's own arguments, and the device and type under the names `device` and
    `dtype`. Raises `WrongUsage` if neither has a given argument, or if the function needs one that was not given.

    With `workload.inputs_of` the function gets the inputs of that target, and the values for its own arguments. Raises
    `WrongUsage` if it cannot be called with them.
    """
    function, maker = _function_and_maker(target)
    arguments = arguments_of(function)
    if workload.inputs_of:
        return _called_as_another(target, function, arguments, workload, device)
    of_maker = arguments_of(maker) if maker is not None else {}
    sizes = _requested_sizes(target, workload, {**of_maker, **arguments})
    values_of(target, _known_to_neither(workload, arguments, of_maker), arguments)  # raises for any name
    given = _given(target, workload, arguments, sizes, device)
    missing = [one.name for one in arguments.values() if one.is_required and one.name not in given]
    columns = {COLUMNS[size]: value for size, value in sizes.items()}
    if maker is None:
        _check_the_rest(target, missing)
        _check_call(target, partial(function, **given), (), arguments)
    inputs = maker(**_given(f"{target}'s {MAKER}", workload, of_maker, sizes, device)) if maker is not None else None
    if missing:
        _check_call(target, partial(function, **given), inputs, arguments)
        note = f"{_name(target)} is called with what {MAKER} returns"
        found = CalledFunction(partial(function, **given), inputs, columns, is_model=False, note=note)
    else:
        found = _told_apart(target, partial(function, **given), given, inputs, columns)
    found.takes_dtype = "dtype" in arguments or "dtype" in of_maker
    return found


def _check_call(target: str, work: Callable[..., Any], inputs: Any, arguments: Mapping[str, Argument]) -> None:
    """Raise `WrongUsage` if a function cannot be called with these inputs, or does nothing when called."""
    plain = inspect.unwrap(work.func if isinstance(work, partial) else work)
    if inspect.isgeneratorfunction(plain) or inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        kind = "a generator" if inspect.isgeneratorfunction(plain) else "asynchronous"
        raise WrongUsage(
            f"{target} is {kind}, so that calling it does nothing yet.",
            advice="Name a function around it that does the work and returns the result.",
        )
    if takes(work, inputs):
        return
    if isinstance(inputs, dict):
        given = f"the arguments {', '.join(inputs)}"
    else:
        count = len(inputs) if isinstance(inputs, (tuple, list)) else 1
        given = f"{count} input{'' if count == 1 else 's'}"
    given = "no inputs" if isinstance(inputs, tuple) and not inputs else given
    raise WrongUsage(
        f"{target} cannot be called with {given}{f', which {MAKER} returns' if given != 'no inputs' else ''}.",
        f"Its arguments are: {', '.join(map(str, arguments.values())) or 'positional only'}.",
        f"Let {MAKER} in the same file return what it needs: a tensor, a tuple, or a dict of keywords.",
    )


def without_those_of(reference: str, workload: Workload) -> Workload:
    """The workload of a function without the arguments that only `reference` has, and with its own inputs."""
    function, maker = _function_and_maker(workload.target)
    own = {**arguments_of(function), **(arguments_of(maker) if maker is not None else {})}
    others = arguments_of(_function_and_maker(reference)[0])
    arguments = tuple((name, text) for name, text in workload.arguments if name in own or name not in others)
    return replace(workload, arguments=arguments, inputs_of="")


def _called_as_another(
    target: str, function: Any, arguments: Mapping[str, Argument], workload: Workload, device: str
) -> CalledFunction:
    """A function, or its result, with the inputs of `workload.inputs_of`."""
    own = called(workload.inputs_of, without_those_of(target, replace(workload, target=workload.inputs_of)), device)
    asked = {"batch": workload.batch_size, "input": workload.input_size, "sequence": workload.sequence_length}
    sizes = {size: value for size, value in asked.items() if value is not None}
    given = _given(target, workload, arguments, sizes, device)
    needs_inputs = not arguments or any(one.is_required and one.name not in given for one in arguments.values())
    work = partial(function, **given)
    note = f"{_name(target)} is called with the inputs of {_name(workload.inputs_of)}"
    found = CalledFunction(work, own.inputs, own.sizes, is_model=False, note=note)
    if not needs_inputs:
        found = _told_apart(target, work, given, own.inputs, own.sizes)
    calls_itself = found.work is work and not needs_inputs
    has_inputs = not isinstance(own.inputs, (tuple, list, dict)) or bool(own.inputs)
    if calls_itself == has_inputs or not takes(found.work, own.inputs):
        inputs = f"the inputs of {workload.inputs_of}" if has_inputs else f"no inputs, as {workload.inputs_of} is"
        raise WrongUsage(
            f"{target} cannot be called with {inputs}.",
            f"Its arguments are: {', '.join(map(str, arguments.values())) or 'none'}.",
            "Let both take the same inputs, or name a function around it that does.",
        )
    found.inputs, found.takes_dtype = own.inputs, True
    return found


def _told_apart(
    target: str, function: Callable[[], Any], given: dict[str, Any], inputs: Any, sizes: dict[str, int]
) -> CalledFunction:
    """The kind of a function that needs no inputs, judged by its result. `inputs` are from `make_inputs`, or None."""
    made = function()
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return CalledFunction(*made, sizes, is_model=_is_module(made[0]))
    if _is_module(made) and inputs is None:
        raise WrongUsage(
            f"{target} returned a module without inputs.",
            advice=f"Return (module, inputs), or write a function {MAKER} beside it that returns them.",
        )
    if callable(made):
        if inputs is None or not (_is_module(made) or takes(made, inputs)):
            return CalledFunction(made, (), sizes, is_model=False, note=f"{_name(target)} returned the called function")
        note = f"{_name(target)} returned the called function, with inputs from {MAKER}"
        return CalledFunction(made, inputs, sizes, _is_module(made), note)
    told = ", ".join(f"{name}={value}" for name, value in given.items())
    note = f"{_name(target)}({told}) is called as it is: its own inputs are part of the work ({MAKER} is not)"
    return CalledFunction(function, (), sizes, is_model=False, note=note)


def _name(target: str) -> str:
    return target.rpartition(":")[2]


def _is_module(made: Any) -> bool:
    from torch import nn

    return isinstance(made, nn.Module)


def _requested_sizes(target: str, workload: Workload, arguments: Mapping[str, Argument]) -> dict[str, int]:
    """The sizes to pass. Raises `WrongUsage` for a requested size that no argument takes."""
    asked = {"batch": workload.batch_size, "input": workload.input_size, "sequence": workload.sequence_length}
    taken: dict[str, int] = {}
    for size, value in asked.items():
        if any(name in arguments for name in ARGUMENTS[size]):
            taken |= {size: value} if value is not None else {}
        elif value is not None and (size, value) != ("batch", 1):
            raise lacks(target, size, arguments)
    return taken


def _known_to_neither(
    workload: Workload, arguments: Mapping[str, Argument], of_maker: Mapping[str, Argument]
) -> dict[str, str]:
    return {name: text for name, text in workload.arguments if name not in arguments and name not in of_maker}


def _given(
    target: str, workload: Workload, arguments: Mapping[str, Argument], sizes: Mapping[str, int], device: str
) -> dict[str, Any]:
    """Values for the arguments of one function: sizes, device, dtype and the workload's own, each if it has it."""
    given: dict[str, Any] = {
        name: value for size, value in sizes.items() for name in ARGUMENTS[size] if name in arguments
    }
    given |= {"device": device} if "device" in arguments else {}
    given |= {"dtype": dtype_of(workload.dtype)} if "dtype" in arguments else {}
    own = {name: text for name, text in workload.arguments if name in arguments}
    return given | values_of(target, own, arguments)


def _sizes_among(arguments: Iterable[str]) -> frozenset[str]:
    known = set(arguments)
    return frozenset(size for size, names in ARGUMENTS.items() if known & set(names))


def _check_the_rest(target: str, needed: list[str]) -> None:
    for name in needed:
        option = next((OPTIONS[size] for size, names in ARGUMENTS.items() if name in names), f"--arg {name}=VALUE")
        raise WrongUsage(
            f"{target} needs a value for {name}.",
            advice=f"Say {option}, give it a default, or write a function {MAKER} beside it that returns its inputs.",
        )


# ------------------------------------------------------------------------------------------------- finding the function


def _function_and_maker(target: str) -> tuple[Any, Any]:
    """The function, and `make_inputs` of the same module, None if there is none."""
    _import_from_current_folder()
    place, _, name = target.rpartition(":")
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module(place)
    function = getattr(module, name, None)
    if not callable(function):
        near = near_names(name, [one for one in vars(module) if callable(getattr(module, one))], most=1)
        raise WrongUsage(
            f"{place} has no function called {name}." + (f" Did you mean {near[0]}?" if near else ""),
            advice="Write it as FILE.py:FUNCTION.",
        )
    maker = getattr(module, MAKER, None)
    return function, maker if callable(maker) and name != MAKER else None


def _import_from_current_folder() -> None:
    """Make imports search the current folder first, as `python -m` does, for the user's modules.

    `subprocesses.OWN_PYTHON` keeps it off the path until ncu-bench is imported, so that no file there replaces a
    module.
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
    try:
        specification.loader.exec_module(module)
    except SyntaxError as error:
        where = f"line {error.lineno} of {error.filename or path}"
        raise NcuBenchError(f"{path} could not be imported: {error.msg} in {where}.", advice="Correct it.") from error
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
