"""Tables of facts: TOML files beside the code that reads them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib as tomllib
else:
    import tomli as tomllib


@cache
def table_beside(module: str, name: str) -> dict[str, Any]:
    """The table `name`.toml beside a module, given by its `__file__`. It is parsed once; do not modify it."""
    return tomllib.loads((Path(module).parent / f"{name}.toml").read_text("utf-8"))
