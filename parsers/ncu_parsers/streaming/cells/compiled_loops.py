"""The loops of `native/`; None where what was installed was not compiled, and loops in Python stand in."""

from __future__ import annotations

from types import ModuleType

loops: ModuleType | None
try:
    from ncu_parsers.streaming.cells import _rows as loops
except ImportError:
    loops = None
