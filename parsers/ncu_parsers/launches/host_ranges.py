"""Kinds of host ranges, and how many of the open ranges are kept."""

from __future__ import annotations

DEEPEST = 100
"""If more ranges are open, only the innermost are kept: a program that never ends its ranges has no useful path. Used
for timelines of every tool."""

OPERATOR, ANNOTATION, MODULE = "operator", "annotation", "module"
"""Kinds of ranges in traces of PyTorch's profiler."""
