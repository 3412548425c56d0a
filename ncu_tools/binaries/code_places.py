"""Tables of a kernel's code by line of source and by instruction: instruction counts, spilled bytes, live registers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ncu_tools.binaries.kernel_listing import CodeListing
from ncu_tools.binaries.static_facts import full_name, width_of
from ncu_tools.kernels.source.instruction_mix import kind_of

MOST_KINDS = 3
Row = dict[str, Any]


def spilled_bytes(listing: CodeListing) -> dict[int, int]:
    """Offset -> bytes per thread that the instruction there spills or reloads, where the compiler marked it."""
    spills = listing.kernel.resources.spills
    marked = frozenset(spills.offsets if spills is not None else ())
    return {
        offset: width_of(one)
        for offset, one in zip(listing.offsets, listing.instructions, strict=True)
        if offset in marked and one is not None
    }


def rows_of_lines(listing: CodeListing) -> list[Row]:
    """A row for each line of source, in the order of the code; [] if compiled without -lineinfo."""
    spilled, found = spilled_bytes(listing), dict[tuple[str | None, int], list[int]]()
    for place, offset in enumerate(listing.offsets):
        line = listing.line_at(offset)
        if line is not None:
            found.setdefault((line.file, line.line), []).append(place)
    return [_row_of_line(listing, key, places, spilled) for key, places in found.items()]


def _row_of_line(listing: CodeListing, key: tuple[str | None, int], places: list[int], spilled: dict[int, int]) -> Row:
    file, line = key
    code = [one for place in places if (one := listing.instructions[place]) is not None]
    kinds = Counter(kind_of(full_name(one)) for one in code).most_common(MOST_KINDS)
    return {
        "place": f"{(file or '?').rpartition('/')[2]}:{line}",
        "file": file,
        "line": line,
        "instruction_count": len(code),
        "local_bytes": sum(spilled.get(listing.offsets[place], 0) for place in places) or None,
        "live_registers": max(listing.live[place] for place in places) if listing.live is not None else None,
        "kinds": ", ".join(f"{kind} {count}" for kind, count in kinds),
    }


def rows_of_instructions(listing: CodeListing) -> list[Row]:
    """A row for each instruction, in the order of the code."""
    spilled, rows = spilled_bytes(listing), list[Row]()
    for place, offset in enumerate(listing.offsets):
        line = listing.line_at(offset)
        rows.append({
            "place": f"{offset:#06x}",
            "offset": offset,
            "text": listing.texts[place],
            "file": line.file if line is not None else None,
            "line": line.line if line is not None else None,
            "local_bytes": spilled.get(offset),
            "live_registers": listing.live[place] if listing.live is not None else None,
        })  # fmt: skip
    return rows
