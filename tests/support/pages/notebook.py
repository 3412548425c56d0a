"""docs/notebook.ipynb: the Python cells of docs/python.md, to be opened in a clone."""

from __future__ import annotations

import json
import re

from tests.conftest import ROOT

PAGE, NOTEBOOK = ROOT / "docs" / "python.md", ROOT / "docs" / "notebook.ipynb"
HEAD = "# Reports in a notebook\n\nThe cells of [python.md](python.md), for a notebook that is opened in `docs/` of a clone."
SETUP = """import os
from pathlib import Path

import ncu_tools

os.chdir("..")
if not Path("run").exists():  # a model's run, for its layers
    ncu_tools.profile("resnet18", output="run")
"""


def cells_of_the_page() -> list[str]:
    """The blocks of Python of the page, in their order."""
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def notebook() -> str:
    """The notebook as a file of nbformat 4.5."""
    cells = [("markdown", HEAD), *(("code", cell) for cell in (SETUP, *cells_of_the_page()))]
    listed = [_cell(number, kind, text.rstrip("\n")) for number, (kind, text) in enumerate(cells)]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    made = {"cells": listed, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, kind: str, text: str) -> dict[str, object]:
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})
