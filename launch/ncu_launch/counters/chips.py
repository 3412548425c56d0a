"""The chips that ncu supports, the metrics that each lacks, and the chip of a GPU. Read from `tables/chips.toml`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ncu_launch.counters.metrics import TENSOR_PREFIX, lacks_tensor_cores, table
from ncu_launch.errors import WrongUsage, near_names

if TYPE_CHECKING:
    from ncu_launch.profilers.command_line import Version


class Chip(NamedTuple):
    """One chip: `family` is the first chip with the same metrics; `since` and `until` are the ncu versions with it.

    `since` and `until` are None if every older or newer version has it. The counters `tensor_totals` add up to all
    tensor operations; `tensor_dense` and `tensor_sparse` are their parts without and with structured sparsity. All are
    full metric names ending in .sum.
    """

    name: str
    title: str
    family: str
    compute_capability: str | None
    since: Version | None
    until: Version | None
    tensor_totals: tuple[str, ...]
    tensor_dense: tuple[str, ...]
    tensor_sparse: tuple[str, ...]

    @property
    def has_tensor_cores(self) -> bool:
        """True if the chip has counters of tensor operations."""
        return bool(self.tensor_totals)

    @property
    def is_before_ampere(self) -> bool:
        """True for Volta and Turing: no structured sparsity; clocks and read/write splits take extra passes."""
        return self.compute_capability is not None and int(self.compute_capability.split(".")[0]) < 8

    def known_to(self, version: Version | None) -> bool:
        """True if this version of ncu supports the chip; None means the newest version."""
        if version is None:
            return self.until is None
        return (self.since is None or version >= self.since) and (self.until is None or version <= self.until)


def version_of(text: str) -> Version:
    """Parse "2024.1" or "2024.1.1" into (2024, 1).

    Raises `WrongUsage` if the text is not a version.
    """
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        raise WrongUsage(f"{text} is no version of ncu.", advice="Versions look like 2024.1.")
    return int(parts[0]), int(parts[1])


def version_text(version: Version) -> str:
    """The inverse of `version_of`."""
    return f"{version[0]}.{version[1]}"


@cache
def chips() -> tuple[Chip, ...]:
    """Every chip, oldest family first."""
    return tuple(_chip(family, name) for family in table("chips")["family"] for name in family["chips"])


def _chip(family: dict[str, Any], name: str) -> Chip:
    since, until = family.get("since", {}).get(name), family.get("until")
    return Chip(
        name,
        family["title"],
        family["chips"][0],
        family.get("compute_capability"),
        version_of(since) if since else None,
        version_of(until) if until else None,
        *(tuple(f"{TENSOR_PREFIX}{entry}.sum" for entry in family[kind]) for kind in ("totals", "dense", "sparse")),
    )


def find_chip(name: str) -> Chip:
    """The chip called `name`, case-insensitive.

    Raises `WrongUsage`, listing the chips, if there is none.
    """
    for chip in chips():
        if chip.name == name.upper():
            return chip
    names = [chip.name.lower() for chip in chips()]
    near = near_names(name.lower(), names, most=3, cutoff=0.5)
    raise WrongUsage(
        f"There is no chip called {name}.",
        f"Near names: {', '.join(near)}." if near else "",
        f"Chips are {', '.join(names)}.",
    )


def chip_of(compute_capability: str | None, device_name: str | None = None) -> Chip | None:
    """The chip of a GPU, or another of its family with the same metrics. None if the GPU is unknown."""
    if compute_capability is None:
        return None
    has_none = lacks_tensor_cores(compute_capability, device_name)
    alike = (chip for chip in chips() if chip.compute_capability == compute_capability)
    return next((chip for chip in alike if chip.has_tensor_cores != has_none), None)


def exists(metric: str, chip: Chip, version: Version | None) -> bool:
    """True if `metric` (any suffix) exists on the chip in this version of ncu; None means the newest version.

    The table lists only metrics that some chip or version lacks, so invented names pass too: use this to filter known
    metrics, not to validate user input.
    """
    return not any(_applies(entry, metric, chip, version) for entry in table("chips")["absent"])


def is_conditional(metric: str) -> bool:
    """True if some chip or version lacks `metric`."""
    return any(metric.startswith(entry["prefix"]) for entry in table("chips")["absent"])


def _applies(entry: dict[str, Any], metric: str, chip: Chip, version: Version | None) -> bool:
    if not metric.startswith(entry["prefix"]):
        return False
    if "chips" in entry and chip.name not in entry["chips"]:
        return False
    if chip.name in entry.get("except", ()):
        return False
    if "before" in entry:
        return version is not None and version < version_of(entry["before"])
    return "from" not in entry or version is None or version >= version_of(entry["from"])
