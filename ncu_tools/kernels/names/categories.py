"""The category of a kernel by its name: GEMM, convolution, attention ... or other, by the rules of categories.toml.

    category_of("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(...)")  -> "GEMM"
    category_of("multi_tensor_apply_kernel<...>", "aten::_fused_adamw_")                            -> "optimizer"

The name decides. The operator that launched the kernel decides only where no rule knows the name, or where the rule
says that a name of that kind says too little (`hint`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema import arrays, tables

from ncu_tools.kernels.names.cpp_names import KNOWN_NAMES, MOST_LETTERS
from ncu_tools.kernels.names.kernel_titles import function_path

OTHER = "other"
CATEGORIES = (
    "GEMM", "convolution", "attention", "normalisation", "softmax", "reduction", "element-wise", "embedding / gather",
    "sort", "copy", "communication", "optimizer", OTHER,
)  # fmt: skip
COMMUNICATION = "communication"
MOST_LETTERS_OF_A_PATH = 1_000
CATEGORY, DECIDED_BY = "category", "category_by"
"""The columns of launches that `with_categories` adds."""
NEEDED = ("kernel_name", "operator")
"""The columns of launches that `with_categories` needs."""

_AN_OPERATOR = re.compile(r"[\w.]+::[\w.]+")


@dataclass(frozen=True)
class Decision:
    """The category of a kernel, what decided it in words, and its kind if that is known but is no category."""

    category: str
    by: str
    kind: str = ""


@dataclass(frozen=True)
class CategoryRule:
    """A rule of the table: its decision if `function` is in the function's path and `anywhere` in the name.

    With `hint` the operator takes precedence.
    """

    decision: Decision
    function: re.Pattern[str]
    anywhere: re.Pattern[str] | None
    hint: bool

    def matches(self, function: str, whole: str) -> bool:
        """True if the rule matches a kernel by the path of its function and its whole name, both in lower case."""
        return self.function.search(function) is not None and (
            self.anywhere is None or self.anywhere.search(whole) is not None
        )


def table() -> dict[str, Any]:
    """The table of rules, as in the file."""
    return table_beside(__file__, "categories")


def category_of(name: str, operator: str | None = None) -> str:
    """The category of a kernel, copy or operator by its name, one of `CATEGORIES`; see the module on `operator`."""
    return decision_of(name, operator).category


@lru_cache(maxsize=KNOWN_NAMES)
def decision_of(name: str, operator: str | None = None) -> Decision:
    """As `category_of`, with the reason."""
    if _AN_OPERATOR.fullmatch(name) and (found := _of_operator(name)) is not None:
        return found
    rule = _by_name(name)
    if (rule is None or rule[1]) and operator and (found := _of_operator(operator)) is not None:
        return found
    return rule[0] if rule is not None else Decision(OTHER, "no rule")


@lru_cache(maxsize=KNOWN_NAMES)
def _by_name(name: str) -> tuple[Decision, bool] | None:
    """The decision by the name alone, and whether an operator takes precedence."""
    looked_at = name[:MOST_LETTERS]
    function, whole = function_path(looked_at)[:MOST_LETTERS_OF_A_PATH].lower(), looked_at.lower()
    generated = _inductor_name().match(function)
    if generated is not None:
        return _of_inductor(generated["kind"], generated["operators"]), False
    for rule in _rules():
        if rule.matches(function, whole):
            return rule.decision, rule.hint
    return None


@lru_cache(maxsize=1)
def _rules() -> tuple[CategoryRule, ...]:
    return tuple(
        CategoryRule(
            Decision(one["category"], f"rule: {one['from']}", one.get("kind", "")),
            re.compile(one["function"]),
            re.compile(one["anywhere"]) if "anywhere" in one else None,
            one.get("hint", False),
        )
        for one in table()["rule"]
    )


@lru_cache(maxsize=1)
def _inductor_name() -> re.Pattern[str]:
    return re.compile(table()["inductor"]["name"])


def _of_inductor(kind: str, operators: str) -> Decision:
    """The category of a kernel that torch.compile generated: the first rule for its kind and fused operators."""
    for rule in table()["inductor"]["rule"]:
        if ("kinds" not in rule or kind.startswith(tuple(rule["kinds"]))) and re.search(rule["operators"], operators):
            return Decision(rule["category"], f"fused operators: {operators.strip('_') or 'not named'} ({kind})")
    return Decision(OTHER, "no rule")


@lru_cache(maxsize=KNOWN_NAMES)
def _of_operator(name: str) -> Decision | None:
    for category, pattern in _operators():
        if pattern.search(name):
            return Decision(category, f"operator: {name}")
    return None


@lru_cache(maxsize=1)
def _operators() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((one["category"], re.compile(one["pattern"])) for one in table()["operator"])


# ------------------------------------------------------------------------------------------------- of many launches


def decisions(launches: pa.Table) -> tuple[npt.NDArray[np.int64], list[Decision]]:
    """The number of each launch's decision (int64, one per launch), and the decisions of distinct names."""
    codes, names = tables.codes(launches, "kernel_name")
    of_operators, operators = tables.codes(launches, "operator")
    pairs = codes.astype(np.int64) * len(operators) + of_operators
    distinct, numbers = np.unique(pairs, return_inverse=True)
    found = [
        decision_of(names[pair // len(operators)] or "?", operators[pair % len(operators)])
        for pair in distinct.tolist()
    ]
    return numbers.astype(np.int64), found


def categories_in(launches: pa.Table) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Index of each launch's category in `CATEGORIES` (int64, one per launch), and the categories."""
    numbers, found = decisions(launches)
    places = np.array([CATEGORIES.index(one.category) for one in found], np.int64)
    return places[numbers], list(CATEGORIES)


def category_of_rows(names: pa.Array, operators: pa.Array) -> pa.Array:
    """The categories of many names with their operators, as texts; null without a name."""
    pairs = zip(names.to_pylist(), operators.to_pylist(), strict=True)
    return pa.array([None if name is None else category_of(name, operator) for name, operator in pairs], pa.string())


def with_categories(launches: pa.Table) -> pa.Table:
    """The launches with the columns `category` and `category_by`, unless they have them."""
    if CATEGORY in launches.column_names:
        return launches
    numbers, found = decisions(launches)
    for name, words in ((CATEGORY, [one.category for one in found]), (DECIDED_BY, [one.by for one in found])):
        known: dict[str, int] = {}
        places = np.array([known.setdefault(word, len(known)) for word in words], np.int32)
        column = pa.DictionaryArray.from_arrays(arrays.indices(places[numbers]), arrays.texts(list(known)))
        launches = launches.append_column(name, column)
    return launches
