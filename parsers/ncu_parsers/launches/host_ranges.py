"""Kinds of host ranges, and how many of the open ranges are kept."""

from __future__ import annotations

DEEPEST = 100
"""If more ranges are open, only the innermost are kept: a program that never ends its ranges has no useful path. Used
for timelines of every tool."""

OPERATOR, ANNOTATION, MODULE, MODULE_PATH = "operator", "annotation", "module", "module path"
"""Kinds of ranges in traces of PyTorch's profiler; our launcher marks modules by their whole dotted path."""
