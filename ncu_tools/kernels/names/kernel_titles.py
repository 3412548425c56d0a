"""The short names of `--by short`: a function's path with the functor it runs, without types, numbers, parameters.

    void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char *, 3>>(int)
        -> at::native::vectorized_elementwise_kernel<CUDAFunctor_add>

Namespaces are kept, so that functions of the same name in two namespaces differ. Template arguments are kept only if
they select the code that runs (functors, lambdas by their enclosing function, function pointers); types and numbers are
instantiations of one template, and share a short name. A wrapper such as `cutlass::Kernel2<...>` gets the name of its
content: a CUTLASS kernel its own name, or its class, tile and element type. A short name depends on nothing but the
full name, so it is the same whatever the order of reading and the machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from ncu_tools.kernels.names.cpp_names import COPY, NamePart, path_of, prepared

_NAMES_NOTHING = re.compile(r"_?(?:device_|static_|global_)?kernel_?\d*", re.IGNORECASE)
"""Function names that say no more than "kernel"."""

_PASSES_ON = frozenset({"gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "ReduceOp", "func_wrapper_t"})
"""Templates of PyTorch that only forward a functor."""

_RUNS = re.compile(
    r"[Ff]unctor|Ops?$|_op$|^(?:plus|minus|multiplies|divides|maximum|minimum|Sum|Max|Min|ArgMax|ArgMin)$"
)
"""Class names that describe what a kernel does to its elements."""

_ELEMENT = re.compile(
    r"\b(?:half_t|bfloat16_t|tfloat32_t|float_e[45]m[23]_t|float_e2m1_t|u?int(?:8|4b)_t|signed char|double|float)\b"
)
_TILE = re.compile(r"\bGemmShape<(\d+),(\d+),(\d+)>")
_CUTE_TILE = re.compile(r"tuple<(?:cute::)?C<(\d+)>,(?:cute::)?C<(\d+)>,(?:cute::)?C<(\d+)>")
_PLAIN = re.compile(
    r"-?[\d.]+|(?:(?:unsigned|signed|const|int|long|char|short|float|double|bool|void)\b[ *&]*)+", re.ASCII
)
_ARGUMENTS = re.compile(r"<[^<>]*>")
_LENGTH = re.compile(r"[0-9]{1,4}")
"""Length of the next identifier in a mangled name."""
_HARD = re.compile(r"enable_if|operator\W|->|>=|<=")
"""Constructs that brackets alone cannot separate."""
DEEPEST = 12
"""Deepest nesting of template arguments that is parsed; names in reports may nest without end."""

LEAST_TILE = 512
"""The least M x N x K of a tile; clusters have at most 16 blocks."""

_ENDS_IN_LAMBDA = re.compile(r"\{lambda\([^{}]*\)#\d+\}$|lambda\([^()]*\)\(instance \d+\)\]$")


@lru_cache(maxsize=65536)
def short_title(name: str) -> str:
    """The short name of a kernel; a name that is not C++ is returned unchanged.

    If only the word "kernel" is known of the function, the parameters are kept.
    """
    text = prepared(name)
    path = [] if COPY.match(name) else path_of(text)
    if not path:
        return name.strip()
    return _of_function(text, path).replace("{unnamed}", "<unnamed>")


@lru_cache(maxsize=65536)
def function_path(name: str) -> str:
    """Namespaces and name of a kernel's function, without return type, template arguments and parameters.

    Names that are not C++ are returned whole; for mangled names only the path is parsed.
    """
    if COPY.match(name):
        return name
    if name.startswith("_Z"):
        return _mangled_path(name)
    text = name.replace("(anonymous namespace)", "{unnamed}").replace("<unnamed>", "{unnamed}")
    if not _HARD.search(text):
        for _ in range(DEEPEST):
            text = _ARGUMENTS.sub("", text)
        words = text.partition("(")[0].split()
        if words and not {"<", ">"} & set(words[-1]):
            return words[-1]
    return "::".join(part.name for part in path_of(prepared(name))) or name.strip()


def _mangled_path(name: str) -> str:
    """The identifiers of a mangled name up to its template arguments: _ZN5aiter7rmsnormIfEEvv is aiter::rmsnorm."""
    place = 3 if name.startswith("_ZN") else 2
    found = []
    while (size := _LENGTH.match(name, place)) is not None:
        start, length = size.end(), int(size[0])
        found.append(name[start : start + length])
        place = start + length
    return "::".join(found) or name


def _of_function(text: str, path: Sequence[NamePart]) -> str:
    function = path[-1]
    scope = tuple(part.name for part in path[:-1])
    if names_nothing(function.name):
        wrapped = _wrapped(scope, function)
        if wrapped:
            return wrapped
        if not scope:
            return text if not function.arguments else _nested(function)
    runs = list(dict.fromkeys(_run_by(function.arguments, scope)))
    return _title("::".join((*scope, function.name)), runs)


def names_nothing(function: str) -> bool:
    """True if a function name says no more than "kernel", such as `Kernel2`."""
    return _NAMES_NOTHING.fullmatch(function) is not None


def _title(function: str, arguments: Sequence[str]) -> str:
    return f"{function}<{', '.join(arguments)}>" if arguments else function


# ------------------------------------------------------------------------------------------------------- what it wraps


def _wrapped(scope: tuple[str, ...], function: NamePart) -> str | None:
    """The name of the class that a CUTLASS wrapper was instantiated with; None for other functions.

    The full name of a class in a CUTLASS library includes tile and type; for other templates the tile and the element
    type after it are added.
    """
    argument = next((one for one in function.arguments if not is_plain(one)), "")
    path = path_of(argument)
    if not path or (scope[0] if scope else path[-1].name.partition("_")[0]) != "cutlass":
        return None
    kernel = path[-1]
    for _ in range(DEEPEST):  # for example flash::enable_sm90<...>
        if len(kernel.arguments) == 1 and (inner := path_of(kernel.arguments[0])):
            kernel = inner[-1]
    tile = _tile(argument)
    element = _ELEMENT.search(argument, tile.end() if tile else 0) if kernel.arguments else None
    details = ["x".join(tile.groups())] if tile else []
    return _title(kernel.name, [*details, *([element[0]] if element else [])])


def _tile(text: str) -> re.Match[str] | None:
    """The tile of a thread block: CUTLASS 2's first shape, or CUTLASS 3's first that is too large for a cluster."""
    shapes = _CUTE_TILE.finditer(text)
    return _TILE.search(text) or next((one for one in shapes if math.prod(map(int, one.groups())) >= LEAST_TILE), None)


# ----------------------------------------------------------------------------------------------- what it is made to run


def _run_by(arguments: Sequence[str], scope: tuple[str, ...], depth: int = 0) -> Iterator[str]:
    """The functors, lambdas and functions in template arguments, named relative to `scope`."""
    for argument in arguments if depth < DEEPEST else ():
        is_pointer = argument.startswith(("&", "(&"))
        path = path_of(argument.strip("(&)") if is_pointer else argument)
        if not path:
            continue
        last = path[-1]
        inner = list(dict.fromkeys(_run_by(last.arguments, scope, depth + 1)))
        if inner and last.name in _PASSES_ON:
            yield from inner
        elif is_pointer or _ENDS_IN_LAMBDA.search(argument):
            yield _from(path, scope)
        elif _RUNS.search(last.name):
            yield _title(_from(path, scope), inner)
        else:
            yield from inner


def _nested(part: NamePart, depth: int = 0) -> str:
    """A class or function with its class template arguments, down to `DEEPEST`."""
    if depth == DEEPEST:
        return part.name
    classes = [path for argument in part.arguments if not is_plain(argument) and (path := path_of(argument))]
    return _title(part.name, list(dict.fromkeys(_nested(path[-1], depth + 1) for path in classes)) or part.arguments)


def _from(path: Sequence[NamePart], scope: tuple[str, ...]) -> str:
    """The names of a path without the namespaces that it shares with `scope`."""
    names = [part.name for part in path]
    shared = 0
    while shared < min(len(names) - 1, len(scope)) and names[shared] == scope[shared]:
        shared += 1
    return "::".join(names[shared:])


def is_plain(argument: str) -> bool:
    """True if a template argument is a number or a built-in type."""
    return _PLAIN.fullmatch(argument) is not None
