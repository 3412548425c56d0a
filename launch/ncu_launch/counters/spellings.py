"""Correct common spellings of metric names, and refuse names that do not count what they suggest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncu_launch.counters.metrics import table
from ncu_launch.errors import WrongUsage, near_names


def corrected(name: str, groups: Sequence[str]) -> tuple[str, str]:
    """The metric that `name` stands for, and a note if it was corrected ("" otherwise).

    Raises `WrongUsage` for names that are neither metrics nor `groups`, and for metrics that are commonly
    misunderstood. A name behind `=` (`=smsp__...`) is passed on unchecked.
    """
    if name.startswith("="):
        return name[1:], ""
    for entry in table("spellings")["corrected"]:
        match = re.fullmatch(entry["pattern"], name)
        if match:
            right = entry["to"].format(**match.groupdict())
            return right, f"{name} exists on no chip; {right} is collected instead" if right != name else ""
    for entry in table("spellings")["refused"]:
        if re.fullmatch(entry["pattern"], name):
            raise WrongUsage(f"{name} is not collected.", entry["why"], _advice(name, entry["use"]))
    if "__" in name:
        return name, ""
    near = near_names(name, groups, most=2, cutoff=0.6)
    raise WrongUsage(
        f"{name} is neither a group of metrics nor a metric name.",
        f"Did you mean {' or '.join(near)}?" if near else "",
        f"Groups are {', '.join(groups)}. Metric names have two underscores, as in dram__bytes.sum.",
    )


def _advice(name: str, group: str) -> str:
    as_it_is = f" To collect it all the same, write ={name}." if "__" in name else ""
    return f"Ask for the group {group} instead.{as_it_is}"
