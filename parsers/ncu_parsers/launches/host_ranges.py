"""Kinds of host ranges, and the number of open ranges that are kept."""

from __future__ import annotations

DEEPEST = 100
"""If more ranges are open, only the innermost are kept: a program that never ends its ranges has no useful path. Used
for timelines of every tool."""

OPERATOR, ANNOTATION, MODULE, MODULE_PATH = "operator", "annotation", "module", "module path"
"""Kinds of host ranges; a module path is the whole dotted path of a module, in a range of our launcher."""
