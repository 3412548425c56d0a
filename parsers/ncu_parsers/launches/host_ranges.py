"""What readers of host ranges share: their kinds, and how many of those open at once are kept."""

from __future__ import annotations

DEEPEST = 100
"""Of more open ranges only the innermost are kept: a program that never ends its ranges has no useful path. Used for
timelines of every tool."""

OPERATOR, ANNOTATION, MODULE = "operator", "annotation", "module"
"""Kinds of ranges in traces of PyTorch's profiler."""
