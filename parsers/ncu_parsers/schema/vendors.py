"""Who made the GPU of a launch: the fact that decides whether NVIDIA's profilers can count on it."""

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
    """The vendors of the GPUs that the launches of a table ran on; None where the table does not say."""
    codes, texts = tables.codes(table, VENDOR_COLUMN)
    return {None if (text := texts[code]) is None else vendor_named(text) for code in set(codes.tolist())}
