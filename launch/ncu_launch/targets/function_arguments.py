"""Values of a function's arguments, from texts such as `n=4096` and the types in its signature."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ncu_launch.errors import WrongUsage, near_names

DTYPES = {
    "fp64": "float64", "double": "float64", "fp32": "float32", "float": "float32", "tf32": "float32", "fp16": "float16",
    "half": "float16", "bf16": "bfloat16",
}  # fmt: skip
"""Short name -> torch type; torch's own names are accepted too."""
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
NONE = type(None)


class Argument(NamedTuple):
    """One argument of a function: its type (None if neither annotation nor default shows it) and default, if any."""

    name: str
    kind: Any
    default: Any
    is_required: bool

    def __str__(self) -> str:
        kind = getattr(self.kind, "__name__", str(self.kind)) if self.kind is not None else ""
        return self.name + (f": {kind}" if kind else "") + ("" if self.is_required else f" = {self.default!r}")


def arguments_of(function: Callable[..., Any]) -> dict[str, Argument]:
    """The arguments of a function that can be passed by name; {} for functions in C, which have no signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    hints = _hints(function)
    found = {}
    for one in parameters:
        if one.kind in by_name:
            required = one.default is inspect.Parameter.empty
            kind = hints.get(one.name, None if required or one.default is None else type(one.default))
            found[one.name] = Argument(one.name, kind, None if required else one.default, required)
    return found


def takes(function: Callable[..., Any], inputs: Any) -> bool:
    """True if a function can be called with these inputs: keywords in a dict, else positional ones."""
    args, keywords = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    try:
        inspect.signature(function).bind(*(args if isinstance(args, (tuple, list)) else (args,)), **keywords)
    except TypeError:
        return False
    except ValueError:  # no signature
        return True
    return True


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations as types; annotations that cannot be evaluated are left out."""
    target = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(target)
    except Exception:  # an annotation may name something that exists only for type checkers
        written = getattr(target, "__annotations__", {})
        return {name: kind for name, kind in written.items() if not isinstance(kind, str)}


def split(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Names and values of `NAME=VALUE` texts, in order. Raises `WrongUsage` for other texts and repeated names."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip().isidentifier():
            raise WrongUsage(f"{text} gives no argument a value.", advice="Write it as NAME=VALUE, such as n=4096.")
        if name.strip() in found:
            raise WrongUsage(f"The argument {name.strip()} is given twice.", advice="Give it one value.")
        found[name.strip()] = value.strip()
    return tuple(found.items())


def values_of(
    target: str, given: Mapping[str, str], arguments: Mapping[str, Argument], option: str = "--arg"
) -> dict[str, Any]:
    """The values of arguments given as text, by the types of the function.

    Raises `WrongUsage` for a name that the function does not have, and for a text that is no value of its type.
    """
    require_names(target, given, arguments, option)
    return {name: _value(target, arguments[name], text) for name, text in given.items()}


def require_names(target: str, names: Iterable[str], arguments: Mapping[str, Argument], option: str = "--arg") -> None:
    """Raise `WrongUsage` for a name that a function does not have."""
    for name in names:
        if name not in arguments:
            near = near_names(name, list(arguments), most=1)
            raise WrongUsage(
                f"{target} has no argument called {name}." + (f" Did you mean {near[0]}?" if near else ""),
                f"Its arguments are: {', '.join(map(str, arguments.values())) or 'none'}.",
                f"Name one of these with {option}.",
            )


def _value(target: str, argument: Argument, text: str) -> Any:
    try:
        return parsed(text, argument.kind)
    except ValueError as error:
        raise WrongUsage(
            f"{argument.name}={text} is no value for {argument} of {target}: {error}.",
            advice=f"Give it another value, such as {argument.name}={_example(argument)}.",
        ) from None


def _example(argument: Argument) -> str:
    if not argument.is_required and argument.default is not None:
        return str(argument.default).removeprefix("torch.")
    return {int: "4096", float: "0.5", bool: "true", tuple: "1024x1024"}.get(argument.kind, "fp16")


def parsed(text: str, kind: Any) -> Any:
    """A text as a value of a type: bool, int, float, str, torch.dtype, tuple, list ("1024x1024"), or a union of these.

    Without a type, or for any other type, an integer, a float, or else the text. Raises `ValueError`, which says why
    the text is no value of the type.
    """
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _of_any(text, typing.get_args(kind))
    if kind is tuple or origin in (tuple, list):
        return _sequence(text, kind, list if origin is list else tuple)
    if kind is bool:
        if text.lower() not in TRUTHS:
            raise ValueError("it is neither true nor false")
        return TRUTHS[text.lower()]
    if kind is int:
        return _number(text, int, "it is no whole number")
    if kind is float:
        return _number(text, float, "it is no number")
    if kind is str:
        return text
    if getattr(kind, "__module__", "") == "torch" and getattr(kind, "__name__", "") == "dtype":
        return dtype_of(text)
    return _guess(text)


def _of_any(text: str, kinds: tuple[Any, ...]) -> Any:
    if NONE in kinds and text.lower() in ("none", ""):
        return None
    reasons = []
    for kind in kinds:
        if kind is not NONE:
            try:
                return parsed(text, kind)
            except ValueError as error:
                reasons.append(str(error))
    raise ValueError(" and ".join(reasons))


def _sequence(text: str, kind: Any, made: Callable[[list[Any]], Any]) -> Any:
    """Values separated by x or commas, as 1024x1024."""
    inner = [one for one in typing.get_args(kind) if one is not ...]
    parts = [part.strip() for part in re.split(r"[x,]", text.strip("()[]")) if part.strip()]
    if not parts:
        raise ValueError("it is empty")
    if len(inner) > 1 and len(inner) != len(parts):
        raise ValueError(f"it has {len(parts)} values, not {len(inner)}")
    kinds = inner if len(inner) == len(parts) else (inner or [None]) * len(parts)
    return made([parsed(part, each) for part, each in zip(parts, kinds, strict=False)])


def _number(text: str, kind: Callable[[str], Any], why_not: str) -> Any:
    try:
        return kind(text.replace("_", ""))
    except ValueError:
        raise ValueError(why_not) from None


def _guess(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def dtype_of(text: str) -> Any:
    """The `torch.dtype` of a name such as fp16, bfloat16 or torch.float32. Raises `ValueError` for others."""
    import torch

    found = getattr(torch, DTYPES.get(text.lower(), text.removeprefix("torch.")), None)
    if not isinstance(found, torch.dtype):
        raise ValueError("it is no type of PyTorch")
    return found
