"""One kernel of a binary as rows of a table: resources, occupancy, instructions, accesses, loops, live registers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ncu_parsers.binaries.kernel_resources import KernelResources, PtxKernel

from ncu_tools.binaries.kernel_listing import CodeListing
from ncu_tools.binaries.occupancy_of_code import BlockOccupancy, table_of_occupancy, threads_of
from ncu_tools.binaries.static_facts import StaticFacts
from ncu_tools.kernels.view.occupancy import REGISTERS
from ncu_tools.numbers.number_format import FORMATS, counted, percent

PARTS = {
    "resources": "1 resources", "occupancy": "2 theoretical occupancy", "instructions": "3 instructions in the code",
    "accesses": "4 widths of accesses", "paths": "5 tensor cores and slow paths", "loops": "6 loops",
    "live": "7 live registers", "joined": "8 code beside the run",
}  # fmt: skip
LOOPS_SHOWN, LINES_SHOWN = 6, 6

Row = dict[str, Any]


def _row(part: str, key: str, title: str, number: float | None, unit: str = "", against: str = "", **more: Any) -> Row:
    """A row: `value` for programs, `text` for people, and `against`, the words beside the number."""
    kind = {"byte": "byte", "fraction": "fraction"}.get(unit, "count")
    text = None if number is None else more.pop("text", FORMATS[kind](number))
    return {"part": part, "key": key, "title": title, "value": number, "unit": unit, "against": against, "text": text}


def resource_rows(kernel: KernelResources, ptx: PtxKernel | None) -> list[Row]:
    """Resources of an SM that a kernel needs, its launch bounds, and the size of its code."""
    spills = kernel.spills
    said = "" if spills is None or not spills.bytes else f"{spills.store_bytes:,} stored, {spills.load_bytes:,} loaded"
    unknown = "" if spills is not None else "before CUDA 12.6 ptxas marked no spills: local accesses may be arrays"
    bounds, blocks = kernel.required_threads or kernel.max_threads, ptx.min_blocks if ptx is not None else None
    limit = f"the compiler could take {kernel.register_limit:,}" if kernel.register_limit else ""
    rows = [
        _row("resources", "registers", "registers per thread", kernel.registers, "register", limit),
        _row(
            "resources", "spill_bytes", "spills per thread", spills.bytes if spills is not None else None, "byte", said
        ),
        _row("resources", "stack_bytes", "stack per thread", kernel.stack_bytes, "byte", unknown),
        _row("resources", "static_shared_bytes", "static shared memory", kernel.shared_bytes, "byte"),
        _row("resources", "dynamic_shared_bytes", "dynamic shared memory", kernel.dynamic_shared_bytes, "byte"),
        _row("resources", "barriers", "barriers", kernel.barriers),
        _row("resources", "parameter_bytes", "parameters", kernel.parameter_bytes, "byte"),
        _row("resources", "code_bytes", "machine code", kernel.code_bytes, "byte"),
    ]
    if bounds is not None:
        which = "required" if kernel.required_threads else "at most"
        asked = f"; {counted(blocks, 'block', 'blocks')} per SM asked for" if blocks else ""
        shape = " x ".join(map(str, bounds)) + asked
        rows.append(
            _row("resources", "bound_threads", f"launch bounds: threads {which}", prod(bounds), "thread", shape)
        )
    if kernel.threads:
        rows.append(_row("resources", "threads", "threads per block", kernel.threads, "thread", "by Triton's metadata"))
    return [row for row in rows if row["value"] is not None or row["against"]]


def occupancy_rows(kernel: KernelResources) -> list[Row]:
    """The theoretical occupancy by block size, and for one block size by dynamic shared memory."""
    rows = []
    for one in table_of_occupancy(kernel):
        shared = f", {FORMATS['byte'](one.dynamic_shared_bytes)} dynamic" if one.dynamic_shared_bytes else ""
        key = f"occupancy_{one.threads}" + (f"_{one.dynamic_shared_bytes}" if one.dynamic_shared_bytes else "")
        title = f"{one.threads:,} threads{shared}"
        rows.append(_row("occupancy", key, title, one.fraction, "fraction", limits_in_words(one)))
    return rows


def limits_in_words(one: BlockOccupancy) -> str:
    """Blocks per SM, what limits them, and the sizes of single resources that would raise the occupancy."""
    if not one.blocks:
        return f"no block fits: {one.limiters[0]}"
    limited = f", limited by {' and '.join(one.limiters)}" if one.limiters else ""
    steps = [
        f"{percent(step.fraction)} at {step.to:,} {'registers' if step.resource == REGISTERS else 'B of shared memory'}"
        for step in one.steps
    ]
    return f"{counted(one.blocks, 'block', 'blocks')} per SM{limited}" + (f"; {' or '.join(steps)}" if steps else "")


def instruction_rows(facts: StaticFacts) -> Iterator[Row]:
    """Instructions by kind, widths of accesses, tensor cores and slow paths."""
    whole = facts.instructions
    yield _row("instructions", "instructions", "instructions", whole)
    for kind, count in facts.by_kind.items():
        yield _row("instructions", f"mix_{kind}", kind, count, against=percent(count / whole))
    for space, widths in facts.widths.items():
        for width, count in sorted(widths.items()):
            key = f"{space.replace(' ', '_')}_{width}"
            yield _row("accesses", key, f"{space}, {width} B a thread", count, "inst")
    for path, count in facts.tensor.items():
        yield _row("paths", f"tensor_{path}", f"tensor cores by {path}", count, "inst")
    for name, count in facts.slow.items():
        yield _row("paths", name.split("(")[-1].rstrip(")"), name, count, "inst")


def loop_rows(listing: CodeListing, facts: StaticFacts) -> Iterator[Row]:
    """The loops with most instructions, each with its kinds of instructions and its atomics."""
    for number, loop in enumerate(sorted(facts.loops, key=lambda one: -one.instructions)[:LOOPS_SHOWN]):
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in list(loop.by_kind.items())[:4])
        atomics = f"; {counted(loop.atomics, 'atomic', 'atomics')}" if loop.atomics else ""
        first, last = listing.offsets[loop.first], listing.offsets[loop.last]
        title = f"loop {first:#x} to {last:#x}{_line(listing, first)}"
        yield _row("loops", f"loop_{number}", title, loop.instructions, "inst", kinds + atomics)


def live_rows(listing: CodeListing) -> Iterator[Row]:
    """The peak of live registers, and the lines of source with most; without lines only the peak."""
    if listing.live is None:
        return
    peak = max(listing.live)
    at = listing.offsets[listing.live.index(peak)]
    yield _row("live", "live_registers", "most live registers", peak, "register", f"at {at:#x}{_line(listing, at)}")
    by_line: dict[tuple[str | None, int], int] = {}
    for offset, count in zip(listing.offsets, listing.live, strict=True):
        place = listing.line_at(offset)
        if place is not None:
            key = place.file, place.line
            by_line[key] = max(by_line.get(key, 0), count)
    for number, ((file, line), count) in enumerate(sorted(by_line.items(), key=lambda one: -one[1])[:LINES_SHOWN]):
        yield _row("live", f"live_line_{number}", f"{_short(file)}:{line}", count, "register")


def spill_rows(listing: CodeListing) -> list[Row]:
    """The lines whose instructions spill, the most bytes first."""
    from ncu_tools.binaries.static_facts import width_of

    spills = listing.kernel.resources.spills
    found: dict[str, int] = {}
    marked = set(spills.offsets) if spills is not None else set[int]()
    for offset, instruction in zip(listing.offsets, listing.instructions, strict=True):
        place = listing.line_at(offset) if offset in marked else None
        if place is not None and instruction is not None:
            name = f"{_short(place.file)}:{place.line}"
            found[name] = found.get(name, 0) + width_of(instruction)
    most = sorted(found.items(), key=lambda one: -one[1])[:LINES_SHOWN]
    return [_row("resources", f"spills_{name}", f"spills at {name}", count, "byte") for name, count in most]


def _line(listing: CodeListing, offset: int) -> str:
    place = listing.line_at(offset)
    return f", {_short(place.file)}:{place.line}" if place is not None else ""


def _short(file: str | None) -> str:
    return (file or "?").rpartition("/")[2]


def table_row(kernel: KernelResources) -> Row:
    """The numbers of a kernel as columns of a table."""
    from ncu_tools.binaries.occupancy_of_code import occupancy_for

    threads, is_known = threads_of(kernel)
    found = occupancy_for(kernel, threads)
    bounds = kernel.required_threads or kernel.max_threads
    return {
        "mangled": kernel.name,
        "architecture": kernel.architecture or None,
        "registers": kernel.registers,
        "spill_bytes": kernel.spills.bytes if kernel.spills is not None else None,
        "spill_store_bytes": kernel.spills.store_bytes if kernel.spills is not None else None,
        "spill_load_bytes": kernel.spills.load_bytes if kernel.spills is not None else None,
        "stack_bytes": kernel.stack_bytes,
        "static_shared_bytes": kernel.shared_bytes,
        "barriers": kernel.barriers,
        "block_threads": threads,
        "threads_known": is_known,
        "theoretical_occupancy": found.fraction if found is not None else None,
        "blocks_per_sm": found.blocks if found is not None else None,
        "limited_by": " and ".join(found.limiters) or None if found is not None else None,
        "code_bytes": kernel.code_bytes,
        "max_threads": " x ".join(map(str, bounds)) if bounds else None,
        "register_limit": kernel.register_limit,
        "parameter_bytes": kernel.parameter_bytes,
        "toolkit": kernel.toolkit or None,
    }
