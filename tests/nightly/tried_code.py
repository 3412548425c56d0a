"""The files whose change can change what a case tries: modules, what their import statements load, and the data beside them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT
from tests.whole.test_house import MODULES, imported

PYTHON = (".py", ".pyi", ".pyc", ".so", ".md")


@cache
def code_of(*modules: str) -> tuple[str, ...]:
    """The files of modules, and of all that is loaded with them; a package stands for the modules in it.

    What a reader chooses by a name in a string is not followed: a case names it among its modules.
    """
    paths = [MODULES[module] for module in loaded_with(*modules)]
    found = {path for module in paths for path in (module, *_data_of(module))}
    return tuple(sorted(str(path.relative_to(ROOT)) for path in found))


def loaded_with(*modules: str) -> set[str]:
    """Modules and all that import statements in them load, at the top or in a function."""
    reached: set[str] = set()
    waiting = [one for one in MODULES if any(f"{one}.".startswith(f"{module}.") for module in modules)]
    while waiting:
        if (module := waiting.pop()) not in reached:
            reached.add(module)
            waiting += _loaded_by(module)
    return reached


@cache
def _loaded_by(module: str) -> set[str]:
    path = MODULES[module]
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [node for node in tree.body if not _is_for_types(node)]
    return {*imported(tree, module, is_package=path.name == "__init__.py", in_strings=False)} & MODULES.keys()


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _data_of(module: Path) -> Iterator[Path]:
    """Files and folders of data beside a module that it names: tables, machines, C."""
    text = module.read_text("utf-8")
    for beside in module.parent.iterdir():
        if beside.stem in text and beside.suffix not in PYTHON and not (beside / "__init__.py").is_file():
            yield beside
