"""Engineers' names of kernels: the operation, its types and tile, without namespaces and template arguments.

    void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(...)
        -> elementwise add fp32
    nvjet_tst_192x208_64x4_1x1_h_bz_coopB_bias_TNT
        -> gemm bf16 192x208x64 tnt

Two kernels may have one readable name; `distinct_names` adds their difference. Rules are in readable_names.toml. A name
that no rule matches is shown by its short title, without unnamed namespaces.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.kernels.names.cpp_names import COPY, KNOWN_NAMES, MOST_LETTERS, NamePart, path_of, prepared
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.kernels.names.kernel_titles import DEEPEST, function_path, is_plain, short_title

_NOISE = re.compile(r"(?:<unnamed>|\{unnamed\}|\bunnamed)(?:::|$)|^(?:at|c10|at_cuda_detail|std)::(?:native::|cuda::)?")
_MANGLED_CLASS = re.compile(r"(?<=[A-Z_])(\d{1,3})(?=[A-Z][a-z])")
_MANGLED_WRAPPER = re.compile(r"(?:^|::)k(?:entry|ernel\d*)$")
_LAMBDA_PARAMETERS = re.compile(r"lambda\(([^()]+)\)")
_BRACKET = re.compile(r"[<(\[]")
_OPAQUE = re.compile(r"\bOpaqueType<(?:\(unsigned int\))?(\d+)>")
_WRAPS_A_FUNCTOR = re.compile(r"[ABN]?(?:Unary|Binary|Ternary|Pointwise|Nullary)(?:Op\w*)?Functor")
_TYPED_RESULT = re.compile(r"(?:AUnary|BUnary|Binary)Functor")
_PASSES_ON = re.compile(r"gpu_\w*kernel\w*|_cuda_scatter_gather_internal_kernel|func_wrapper_t")
_END_OF_FUNCTOR = re.compile(r"(?:_?[Ff]unctor|CUDAKernelImpl|Ops?|(?:_cuda)?_kernel(?:_impl|_cuda)?|_cuda_out|_gpu)$")
_COMPUTED = re.compile(r"\{(?:types|floats|function)\}")
_START_OF_FUNCTOR = re.compile(r"^(?:CUDAFunctor(?:OnSelf|OnOther)?_|launch_)")
OF_A_TEST = ".py::"
"""Text in the id of a pytest test, such as tests/test_gemm.py::test_gemm[bf16-1024]."""


@dataclass(frozen=True)
class NameRule:
    """A rule of the table: patterns in the short title and in the whole name, and the text shown."""

    title: re.Pattern[str]
    within: re.Pattern[str] | None
    reads: str


def table() -> dict[str, Any]:
    """The table of rules, as in the file."""
    return table_beside(__file__, "readable_names")


@lru_cache(maxsize=KNOWN_NAMES)
def readable_name(full: str) -> str:
    """The readable name for a full name; names of copies, of tests and names that are not C++ are unchanged."""
    name = " ".join(full[:MOST_LETTERS].split())
    if COPY.match(name) or OF_A_TEST in name or (" " in name and not _BRACKET.search(name)):
        return name
    title = _mangled_title(name) if name.startswith("_Z") else name if _is_short(name) else short_title(name)
    for rule in _rules():
        if (found := rule.title.search(title)) is None:
            continue
        groups = found.groupdict()
        if rule.within is not None:
            if (inside := rule.within.search(normalised_name(name))) is None:
                continue
            groups |= inside.groupdict()
        if read := _filled(rule.reads, groups, name, title):
            return read
    return _plain(title) or name or full


def _is_short(name: str) -> bool:
    """True for a name that is already a short title: its only template arguments are the functions it runs."""
    if "(" in name or "<" not in name or " " in name.replace("<unnamed>", "").partition("<")[0]:
        return False
    path = path_of(prepared(name))
    return not path or not all(map(is_plain, path[-1].arguments))


def is_called(full: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    """True if one of the patterns, or its text as written, is in the full name of a kernel or its readable name."""
    return any(has_text(full, one) or has_text(readable_name(full), one) for one in patterns)


def has_text(name: str, pattern: re.Pattern[str]) -> bool:
    """True if a pattern, or its text as written, is in a name: "f(int *)" is no pattern of itself."""
    return pattern.search(name) is not None or pattern.pattern in name


def called(fulls: Iterable[str], patterns: Sequence[re.Pattern[str]]) -> set[str]:
    """The full names that contain one of the patterns; if none does, those whose readable names do."""
    names = set(fulls)
    found = {name for name in names if any(one.search(name) for one in patterns)}
    return found or {name for name in names if is_called(name, patterns)}


@lru_cache(maxsize=1)
def _rules() -> tuple[NameRule, ...]:
    return tuple(
        NameRule(re.compile(one["title"]), re.compile(one["within"]) if "within" in one else None, one["reads"])
        for one in table()["rule"]
    )


def _mangled_title(name: str) -> str:
    """The path of a mangled function; for an uninformative wrapper, the first class it was instantiated with."""
    path = function_path(name)
    if not _MANGLED_WRAPPER.search(path):
        return path
    start = max((name.find(part) + len(part) for part in path.split("::")), default=0)
    found = _MANGLED_CLASS.search(name, start)
    return path if found is None else f"{path.rpartition('::')[0]}::{name[found.end() : found.end() + int(found[1])]}"


def _plain(title: str) -> str:
    """The short title without unnamed namespaces, PyTorch's own ones, and parameters."""
    bare = _NOISE.sub("", title)
    function = bare.partition("(")[0].strip()
    return bare if not function or bare.startswith("<") else function if "<" not in bare else bare


# -------------------------------------------------------------------------------------------------- what rules show


def _filled(reads: str, groups: Mapping[str, str | None], name: str, title: str) -> str:
    """The text of a rule with its groups filled in; "" if its only word is empty."""
    known: defaultdict[str, str] = defaultdict(str, {key: text for key, text in groups.items() if text})
    tile = [known[key] for key in ("tile", "m", "n", "k") if known[key]]
    known["tile"] = "x".join(tile)
    known["type"], known["out"] = type_word(known["type"]), type_word(known["out"])
    known["out"] = f"-> {known['out']}" if known["out"] not in ("", known["type"]) else ""
    known["layout"] = table()["layouts"].get(known["layout"], known["layout"].lower())
    known["how"] = known["how"].strip("_")
    if _COMPUTED.search(reads) or not known["op"]:
        path = path_of(prepared(name))
        function = path[-1] if path else NamePart(title, ())
        known["types"] = _types(function.arguments)
        known["floats"] = _types([one for one in function.arguments if "int" not in type_word(one)])
        known["function"] = re.sub(r"_kernel$", "", function.name)
        known["op"] = known["op"] or _operation(title)
    elif known["op"]:
        known["op"] = table()["operations"].get(known["op"], known["op"])
    return " ".join(reads.format_map(known).removesuffix("-> ").split())


def type_word(text: str) -> str:
    """A type in engineers' words, such as bf16 for c10::BFloat16; any other text unchanged."""
    bare = re.sub(r"\bconst\b|[*&]", "", text).strip().rpartition("::")[2]
    known: str = table()["types"].get(bare, bare)
    return known


def _is_type(text: str) -> bool:
    return "*" not in text and text.replace("const", "").strip().rpartition("::")[2] in table()["types"]


def _operation(title: str) -> str:
    """The operation of the functor in a title: mul for elementwise_kernel<BinaryFunctor<MulFunctor>>."""
    path = path_of(title.replace("<unnamed>", "{unnamed}"))
    functors = [_innermost(one) for one in path[-1].arguments] if path else []
    telling = [one for one in functors if not _WRAPS_A_FUNCTOR.fullmatch(one)] or functors
    if not telling:
        return ""
    word = _START_OF_FUNCTOR.sub("", _END_OF_FUNCTOR.sub("", telling[0]))
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower().strip("_")
    operation: str = table()["operations"].get(word, word)
    return operation


def _innermost(title: str) -> str:
    """The name of the last class in a title's brackets."""
    path = path_of(title)
    while path and path[-1].arguments and (inner := path_of(path[-1].arguments[-1])):
        path = inner
    return path[-1].name if path else title


def _types(arguments: Sequence[str], depth: int = 0) -> str:
    """The element types in a function's template arguments, as "fp32" or "fp32 -> bool"; "" if none is known."""
    return next((found for one in arguments if depth < DEEPEST and (found := _types_in(one, depth))), "")


def _types_in(argument: str, depth: int) -> str:
    if _is_type(argument):
        return type_word(argument)
    if opaque := _OPAQUE.search(argument):
        return f"{opaque[1]}-byte"
    path = path_of(argument)
    if not path or not (path[-1].arguments or "lambda" in argument):
        return ""
    last = path[-1]
    if _PASSES_ON.fullmatch(last.name) and last.arguments:
        return _types(last.arguments, depth + 1)
    own = [one for one in last.arguments if _is_type(one)]
    if last.name == "ReduceOp":
        return _from_to([one for one in (last.arguments[:1] + last.arguments[3:4]) if _is_type(one)])
    if _TYPED_RESULT.fullmatch(last.name):
        return _from_to(own[:1] + own[-1:])
    parameters = ",".join(_LAMBDA_PARAMETERS.findall(argument)[-1:])
    of_lambda = [one for one in parameters.split(",") if _is_type(one)]
    telling = [one for one in of_lambda if one.strip() != "bool"] or of_lambda or own
    return type_word(telling[0]) if telling else _types(last.arguments, depth + 1)


def _from_to(types: Sequence[str]) -> str:
    words = list(dict.fromkeys(type_word(one) for one in types))
    return " -> ".join(words)
