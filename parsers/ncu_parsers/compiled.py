"""The loops of `loops/`; None where what was installed was not compiled, and loops in Python stand in."""

from __future__ import annotations

from types import ModuleType

loops: ModuleType | None
try:
    from ncu_parsers import _rows as loops
except ImportError:
    loops = None
