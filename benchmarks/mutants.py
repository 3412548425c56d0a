"""Mutants of a module: each has one small mistake in its code. A comparison is inverted or widened, a number changed, a
term or factor dropped, a branch taken always or never, a default changed, or an argument with a default ignored.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

INVERTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
WIDENED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
NO_NUMBERS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
"""Operands that `+` joins as texts or lists: dropping one of them is not an arithmetic mistake."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module: where it is, what was changed into what, and the changed code."""

    path: Path
    scope: str
    line: int
    last_line: int
    was: str
    now: str
    code: ast.Module
    nth: int = 1

    @property
    def name(self) -> str:
        """A name unique in the file, which does not change when the function moves."""
        return f"{self.scope}: {self.was} -> {self.now}" + (f" ({self.nth})" if self.nth > 1 else "")


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file. Docstrings, annotations and texts are not changed."""
    seen: Counter[str] = Counter()
    for mutant in _made(path):
        seen[mutant.name] += 1
        yield replace(mutant, nth=seen[mutant.name])


def _made(path: Path) -> Iterator[Mutant]:
    tree = ast.parse(path.read_text("utf-8"))
    for node, owner, field, place, scope in _places(tree):
        branches = [(ast.unparse(node), ast.Constant(taken)) for taken in (True, False)]
        for was, now in (*(branches if _is_condition(owner, field) else []), *_changes(node)):
            _set(owner, field, place, now)
            changed = ast.fix_missing_locations(copy.deepcopy(tree))
            _set(owner, field, place, node)
            shown = "nothing" if isinstance(now, ast.Pass) else ast.unparse(now)
            yield Mutant(path, scope, node.lineno, node.end_lineno or node.lineno, was, shown, changed)
    yield from _ignored_arguments(path, tree)


Place = tuple["ast.expr | ast.stmt", ast.AST, str, "int | None", str]


def _places(tree: ast.AST, scope: str = "module") -> Iterator[Place]:
    """Every node that may be changed, its parent, its field and index there, and the name of its function."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "format_spec") or _is_of_types(tree, field):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for place, child in children:
            if isinstance(child, ast.AST):
                inner = scope
                if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                    inner = child.name if scope == "module" else f"{scope}.{child.name}"
                if isinstance(child, (ast.expr, ast.stmt)):
                    yield child, tree, field, place, scope
                yield from _places(child, inner)


def _is_of_types(tree: ast.AST, field: str) -> bool:
    """Whether a field holds types, or code that depends only on the Python version."""
    if isinstance(tree, ast.Assign):
        return isinstance(tree.value, ast.Subscript) and isinstance(tree.value.value, ast.Name) and field == "value"
    return isinstance(tree, ast.If) and "version_info" in ast.unparse(tree.test)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Source text and replacement node for each change of a node."""
    was = ast.unparse(node) if isinstance(node, (ast.expr, ast.AugAssign)) else ""
    if isinstance(node, ast.Compare):
        yield from ((was, now) for now in _comparisons(node))
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        yield was, ast.Constant(node.value + 1 if isinstance(node.value, int) else node.value * 2 or 1.0)
    elif isinstance(node, ast.BinOp):
        yield from ((was, now) for now in _terms(node))
    elif isinstance(node, ast.BoolOp) and len(node.values) > 1:
        for place in range(len(node.values)):
            rest = [*node.values[:place], *node.values[place + 1 :]]
            yield was, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert, ast.USub)):
        yield was, node.operand
    elif isinstance(node, ast.AugAssign):
        yield was, ast.copy_location(ast.Pass(), node)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "np.where" and len(node.args) == 3:
        yield was, node.args[1]
        yield was, node.args[2]


def _is_condition(owner: ast.AST, field: str) -> bool:
    """Whether a field decides which branch is taken, or which items a comprehension keeps."""
    if isinstance(owner, ast.While):
        return False  # always: an endless loop; never: a function cut short
    return field == "ifs" or (field == "test" and isinstance(owner, (ast.If, ast.IfExp)))


def _comparisons(node: ast.Compare) -> Iterator[ast.Compare]:
    for place, operator in enumerate(node.ops):
        for table in (INVERTED, WIDENED):
            if type(operator) in table:
                operators = [*node.ops[:place], table[type(operator)](), *node.ops[place + 1 :]]
                yield ast.Compare(node.left, operators, node.comparators)


def _terms(node: ast.BinOp) -> Iterator[ast.expr]:
    """A sum, product or mask with either side dropped."""
    if any(isinstance(side, NO_NUMBERS) or _is_text(side) for side in (node.left, node.right)):
        return
    if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr)):
        yield node.left
    if isinstance(node.op, (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)):
        yield node.right
    if isinstance(node.op, ast.Sub):
        yield ast.UnaryOp(ast.USub(), node.right)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _ignored_arguments(path: Path, tree: ast.Module) -> Iterator[Mutant]:
    """For each parameter with a default: one mutant ignores the argument, another changes the default to None."""
    for function, scope in _functions(tree):
        given = function.args
        places: list[tuple[list[Any], int]] = [(given.defaults, place) for place in range(len(given.defaults))]
        places += [(given.kw_defaults, place) for place in range(len(given.kw_defaults))]
        names = [*given.args[len(given.args) - len(given.defaults) :], *given.kwonlyargs]
        for (defaults, place), name in zip(places, names, strict=True):
            default = defaults[place]
            if default is None:
                continue
            was = f"{name.arg}={ast.unparse(default)}"
            first = 1 if ast.get_docstring(function) is not None else 0
            ignored = ast.Assign([ast.Name(name.arg, ast.Store())], default)
            function.body.insert(first, ast.copy_location(ignored, function.body[-1]))
            code = ast.fix_missing_locations(copy.deepcopy(tree))
            del function.body[first]
            inside = function.body[first] if first < len(function.body) else function
            yield Mutant(path, scope, inside.lineno, inside.lineno, was, "the default, whatever is given", code)
            if not (isinstance(default, ast.Constant) and default.value is None):
                defaults[place] = ast.Constant(None)
                code = ast.fix_missing_locations(copy.deepcopy(tree))
                defaults[place] = default
                yield Mutant(path, scope, inside.lineno, inside.lineno, was, f"{name.arg}=None", code)


def _functions(tree: ast.AST, scope: str = "") -> Iterator[tuple[ast.FunctionDef, str]]:
    for child in ast.iter_child_nodes(tree):
        inner = f"{scope}.{child.name}".strip(".") if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else scope
        if isinstance(child, ast.FunctionDef):
            yield child, inner
        yield from _functions(child, inner)


def _set(owner: ast.AST, field: str, place: int | None, node: ast.AST) -> None:
    if place is None:
        setattr(owner, field, node)
    else:
        getattr(owner, field)[place] = node
