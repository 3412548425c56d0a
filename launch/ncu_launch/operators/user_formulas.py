"""The user's own formulas, from a TOML file: expressions over dimensions, parsed and never run as code.

    ["mylib::fused_mlp"]
    arguments = ["x", "w1", "w2"]
    flops = "2 * prod(x) * w1[0] + 2 * prod(x) / x[-1] * w1[0] * w2[0]"
    bytes = "bytes(x) + bytes(w1) + bytes(w2) + bytes(x)"
    contraction = true

`arguments` name the arguments of the operator in their order. `x` is the value of an argument that is a number; of a
tensor, `x[i]` is dimension i, `prod(x)` the number of elements, `bytes(x)` their bytes, `len(x)` the number of
dimensions. There are + - * / //, brackets, min and max. Without `bytes` every tensor counts once. `contraction` says
that tensor cores do the work.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ncu_launch.errors import WrongUsage
from ncu_launch.files.toml_tables import tomllib
from ncu_launch.operators.calls import Call, Formula, Tensor, UnknownWork

LARGEST = 1 << 20
"""Largest formula file, in bytes."""

_KEYS = frozenset({"arguments", "flops", "bytes", "contraction"})
_Number = int | float
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
}
_OF_A_TENSOR: dict[str, Callable[[Tensor], int]] = {
    "prod": lambda tensor: tensor.elements,
    "bytes": lambda tensor: tensor.bytes,
    "len": lambda tensor: len(tensor.shape),
}
_OF_NUMBERS: dict[str, Callable[..., Any]] = {"min": min, "max": max}


@lru_cache(maxsize=8)
def formulas_in(path: str) -> Mapping[str, Formula]:
    """The formulas in the file at `path`, by operator; {} for "". Raises `WrongUsage` if it is missing or malformed."""
    if not path:
        return {}
    try:
        with Path(path).open("rb") as stream:
            tables = tomllib.loads(stream.read(LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WrongUsage(
            f"{path} cannot be read as a file of formulas: {error}.",
            "It has to be TOML, with a table for each operator.",
            'Write for example: ["mylib::op"], arguments = ["x", "w"], flops = "2 * prod(x) * w[0]"',
        ) from error
    return {name: _formula(name, table, path) for name, table in tables.items()}


def _formula(name: str, table: Any, path: str) -> Formula:
    if not isinstance(table, dict) or not set(table) <= _KEYS or not isinstance(table.get("flops"), str):
        raise _refused(path, name, f"it has to hold flops, and may hold {', '.join(sorted(_KEYS - {'flops'}))}")
    arguments = table.get("arguments", [])
    if not isinstance(arguments, list) or not all(isinstance(one, str) and one.isidentifier() for one in arguments):
        raise _refused(path, name, "arguments has to be a list of names")
    flops = _expression(table["flops"], arguments, path, name)
    moved = _expression(table["bytes"], arguments, path, name) if "bytes" in table else _every_tensor_once
    return Formula(flops, moved, lambda call: 0.0, table.get("contraction") is True, f"the user's {path}")


def _every_tensor_once(call: Call) -> float:
    return float(sum(one.bytes for one in call.every_tensor()))


def _refused(path: str, name: str, why: str) -> WrongUsage:
    return WrongUsage(
        f"{path} has no usable formula of {name}: {why}.",
        advice="Expressions may hold numbers, argument names with [i], prod, bytes, len, min, max and + - * / //.",
    )


# -------------------------------------------------------------------------------------------------------- expressions


def _expression(text: Any, arguments: Sequence[str], path: str, name: str) -> Callable[[Call], float]:
    """A function of a call that evaluates an expression. Raises `WrongUsage` for an unsupported expression."""
    try:
        tree = ast.parse(text, mode="eval").body
        _check(tree, arguments)
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(path, name, f"{text!r} is no expression ({error})") from error
    places = {argument: place for place, argument in enumerate(arguments)}
    return lambda call: float(_value(tree, call, places))


def _check(node: ast.expr, arguments: Sequence[str]) -> None:
    """Raise `ValueError` unless a node and all its descendants are of kinds that `_value` evaluates."""
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("a truth value")
        case ast.Constant(value=int() | float()):
            return
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            _check(left, arguments)
            _check(right, arguments)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, arguments)
        case ast.Subscript(value=ast.Name(id=argument), slice=index) if argument in arguments:
            if not isinstance(_index(index), int):
                raise ValueError(f"{argument} needs a whole number in brackets")
        case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=argument)], keywords=[]) if (
            function in _OF_A_TENSOR and argument in arguments
        ):
            return
        case ast.Call(func=ast.Name(id=function), args=[_, _, *_] as given, keywords=[]) if function in _OF_NUMBERS:
            for one in given:
                _check(one, arguments)
        case ast.Name(id=argument) if argument in arguments:
            return
        case _:
            raise ValueError(f"{ast.unparse(node)} is not known")


def _index(node: ast.expr) -> int | None:
    """An integer, possibly negative; None for anything else."""
    match node:
        case ast.Constant(value=int() as index) if not isinstance(index, bool):
            return index
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as index)):
            return -index
    return None


def _value(node: ast.expr, call: Call, places: dict[str, int]) -> _Number:
    """The value of a checked node. Raises `UnknownWork` if the call lacks an argument that it names."""
    match node:
        case ast.Constant(value=number):
            return number  # type: ignore[return-value]  # as checked
        case ast.BinOp(left=left, op=operation, right=right):
            result: _Number = _OPERATIONS[type(operation)](_value(left, call, places), _value(right, call, places))
            return result
        case ast.UnaryOp(operand=operand):
            return -_value(operand, call, places)
        case ast.Subscript(value=ast.Name(id=argument), slice=index):
            return call.tensor(places[argument]).shape[_index(index) or 0]
        case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=argument)]):
            return _OF_A_TENSOR[function](call.tensor(places[argument]))
        case ast.Call(func=ast.Name(id=function), args=given):
            return _OF_NUMBERS[function](*(_value(one, call, places) for one in given))  # type: ignore[no-any-return]
        case ast.Name(id=argument):
            found = call.value(places[argument])
            if isinstance(found, (int, float)):
                return found
    raise UnknownWork("a number that was not recorded")
