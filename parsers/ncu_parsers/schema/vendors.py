"""The vendor of a launch's GPU, which decides whether NVIDIA's profilers apply."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

import pyarrow as pa

from ncu_parsers.schema import tables

VENDOR_COLUMN = "vendor"
"""A column of launches beyond the contract, which holds the values of `Vendor`."""


class Vendor(Enum):
    """The maker of a GPU or an accelerator."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"
    INTEL = "Intel"
    GOOGLE = "Google"


COUNTED_BY = {Vendor.AMD: "rocprof-compute", Vendor.INTEL: "VTune", Vendor.GOOGLE: "XProf"}
"""Each vendor's own kernel profiler, whose results are not read here."""


def vendor_named(text: str) -> Vendor | None:
    """The vendor whose name a text begins with, in any case; None for another."""
    return next((one for one in Vendor if text.lower().startswith(one.value.lower())), None)


def other_vendors(vendors: Collection[Vendor | None]) -> list[Vendor]:
    """The vendors, in order of their names, if all are known and none is NVIDIA; else []."""
    known = {one for one in vendors if one is not None}
    if len(known) < len(set(vendors)) or Vendor.NVIDIA in known:
        return []
    return sorted(known, key=lambda one: one.value)


def vendors_in(table: pa.Table) -> set[Vendor | None]:
    """The vendors of the GPUs in a table of launches; None if the table does not name one."""
    codes, texts = tables.codes(table, VENDOR_COLUMN)
    return {None if (text := texts[code]) is None else vendor_named(text) for code in set(codes.tolist())}


def why_no_ncu(vendors: Collection[Vendor | None]) -> str:
    """Why ncu and nsys cannot profile GPUs of these vendors, and which tool can; "" if they can."""
    counted = [f"{COUNTED_BY[one]} counts on {one.value}'s GPUs" for one in other_vendors(vendors)]
    return f"{' and '.join(counted)}, which ncu and nsys cannot profile; it is not read here" if counted else ""


def why_no_ncu_for(table: pa.Table) -> str:
    """As `why_no_ncu`, for the GPUs in a table of launches."""
    return why_no_ncu(vendors_in(table))
