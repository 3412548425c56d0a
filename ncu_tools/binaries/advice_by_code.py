"""Optimisations that the code of a kernel alone suggests: instructions are counted where they stand, never timed.

Each finding counts the instructions (or spilled bytes) that it is about, says how many are in loops and on which line,
and has a sentence with the numbers. Findings in loops come first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.binaries.kernel_resources import KernelResources
from ncu_parsers.ncu_rep.sass.sass_text import Instruction

from ncu_tools.binaries.code_places import spilled_bytes
from ncu_tools.binaries.kernel_listing import CodeListing
from ncu_tools.binaries.static_facts import Loop, StaticFacts, full_name, width_of

WIDE = 16
LEAST_INTEGER_SHARE, LEAST_LOOP = 0.4, 12
"""Least fraction of integer instructions, and fewest instructions, of an inner loop that is index arithmetic."""
LEAST_PRODUCTS, PRODUCT_SHARE = 4, 0.8
"""Fewest multiply-adds onto a sum, and their least share of FP32 and FP16 work, of a loop that sums products."""
_ADDRESS = re.compile(r"\[(?P<base>[^\]+]*?)(?:\+(?P<offset>-?0x[0-9a-f]+))?\]$")
_DIVISION = re.compile(r"FCHK|MUFU\.RCP64H|I2F(?:\.[\w.]*)?\.RP$")
_TO_DOUBLE, _TO_FLOAT = "F2F.F64.F32", "F2F.F32.F64"
_GLOBAL = frozenset({"LDG", "STG"})
_LOCAL = frozenset({"LDL", "STL"})


@dataclass(frozen=True)
class CodeFinding:
    """One lever on one kernel: `count` of `unit` in the code, `in_loops` of them, and the line with most.

    `in_loops` and `place` are None where the instructions are not known.
    """

    lever: str
    count: int
    in_loops: int | None
    unit: str
    place: str | None
    says: str

    @property
    def title(self) -> str:
        """The lever in words."""
        return str(_texts()[self.lever]["title"])

    @property
    def remedy(self) -> str:
        """What to change."""
        return str(_texts()[self.lever]["remedy"])


@cache
def _texts() -> dict[str, dict[str, str]]:
    return dict(table_beside(__file__, "code_levers"))


@dataclass
class _Kernel:
    """A kernel's instructions and their facts, with the look-ups that the levers share."""

    listing: CodeListing
    facts: StaticFacts

    @cached_property
    def in_loops(self) -> frozenset[int]:
        """Indices of the instructions inside any loop."""
        return frozenset().union(*(one.places for one in self.facts.loops))

    def where(self, places: list[int]) -> str:
        """The line of source with most of these instructions; without lines, the offset of the first one."""
        lines: dict[str, int] = {}
        for place in places:
            found = self.listing.line_at(self.listing.offsets[place])
            if found is not None:
                name = f"{(found.file or '?').rpartition('/')[2]}:{found.line}"
                lines[name] = lines.get(name, 0) + 1
        return max(lines, key=lambda one: lines[one]) if lines else f"{self.listing.offsets[places[0]]:#x}"

    def places(self, is_wanted: Callable[[Instruction], bool]) -> list[int]:
        """Indices of the instructions that satisfy a test."""
        every = enumerate(self.listing.instructions)
        return [place for place, one in every if one is not None and is_wanted(one)]

    def looped(self, places: list[int]) -> int:
        """How many of these instructions are inside loops."""
        return sum(place in self.in_loops for place in places)


def advice_without_instructions(kernel: KernelResources) -> list[CodeFinding]:
    """The one finding that needs no instructions: spilled bytes, without their lines and how many are in loops."""
    if kernel.spills is None or not kernel.spills.bytes:
        return []
    return [CodeFinding("spills", kernel.spills.bytes, None, "byte", None, _spilled(kernel.spills.bytes, kernel))]


def advice_by_code(listing: CodeListing, facts: StaticFacts) -> list[CodeFinding]:
    """The findings on a kernel, those in loops first."""
    kernel = _Kernel(listing, facts)
    found = [one for lever in LEVERS for one in lever(kernel)]
    return sorted(found, key=lambda one: not one.in_loops)


def _spills(kernel: _Kernel) -> Iterator[CodeFinding]:
    spilled = spilled_bytes(kernel.listing)
    places = [place for place, offset in enumerate(kernel.listing.offsets) if offset in spilled]
    if places:
        inside = sum(spilled[kernel.listing.offsets[place]] for place in places if place in kernel.in_loops)
        whole = sum(spilled.values())
        says = _spilled(whole, kernel.listing.kernel.resources, f", {inside:,} of them in loops")
        yield CodeFinding("spills", whole, inside, "byte", kernel.where(places), says)


def _spilled(count: int, kernel: KernelResources, in_loops: str = "") -> str:
    return f"{count:,} bytes spilled{in_loops}; the compiler could take {kernel.register_limit or '?'} registers"


def _local_arrays(kernel: _Kernel) -> Iterator[CodeFinding]:
    """Local-memory accesses that are not spills; nothing where the compiler marked no spills."""
    if kernel.listing.kernel.resources.spills is None:
        return
    spilled = spilled_bytes(kernel.listing)
    local = kernel.places(lambda one: one.opcode in _LOCAL)
    places = [place for place in local if kernel.listing.offsets[place] not in spilled]
    if places:
        says = f"{len(places):,} accesses of local memory that are no spills: an array indexed by a variable, or a call"
        yield CodeFinding("local-memory", len(places), kernel.looped(places), "inst", kernel.where(places), says)


def _narrow_accesses(kernel: _Kernel) -> Iterator[CodeFinding]:
    """Global accesses of under 16 bytes at neighbouring addresses, which one wider access could replace."""
    every = kernel.places(lambda one: one.opcode in _GLOBAL)
    narrow = [place for place in every if width_of(_at(kernel, place)) < WIDE]
    beside = _neighbours(kernel, narrow)
    if beside:
        says = (
            f"{len(beside):,} of {len(every):,} global accesses move less than 16 bytes a thread beside another of the "
            "same thread"
        )
        yield CodeFinding("widen-accesses", len(beside), kernel.looped(beside), "inst", kernel.where(beside), says)


def _neighbours(kernel: _Kernel, places: list[int]) -> list[int]:
    at: dict[tuple[str, str, int], int] = {}
    for place in places:
        one = _at(kernel, place)
        address = next(filter(None, map(_ADDRESS.search, one.operands)), None)
        if address is not None:
            at[one.opcode, address["base"], int(address["offset"] or "0", 16)] = place
    widths = {key: width_of(_at(kernel, place)) for key, place in at.items()}
    beside = set[int]()
    for (opcode, base, offset), place in at.items():
        behind = at.get((opcode, base, offset + widths[opcode, base, offset]))
        if behind is not None:
            beside |= {place, behind}
    return sorted(beside)


def _at(kernel: _Kernel, place: int) -> Instruction:
    found = kernel.listing.instructions[place]
    return found if found is not None else Instruction("", "NOP", "", ())


def _slow_division(kernel: _Kernel) -> Iterator[CodeFinding]:
    places = kernel.places(lambda one: bool(_DIVISION.match(full_name(one))))
    if places:
        kinds = ", ".join(f"{name} {count}" for name, count in kernel.facts.slow.items() if name.startswith("division"))
        says = f"{kinds}: each a sequence of some 10 to 60 instructions"
        yield CodeFinding("slow-division", len(places), kernel.looped(places), "division", kernel.where(places), says)


def _float_constants(kernel: _Kernel) -> Iterator[CodeFinding]:
    up = kernel.places(lambda one: full_name(one) == _TO_DOUBLE)
    down = kernel.places(lambda one: full_name(one) == _TO_FLOAT)
    if up and down:
        double = kernel.facts.by_kind.get("fp64", 0)
        says = f"{len(up)} floats become double and {len(down)} come back, for {double} double operations between"
        yield CodeFinding("float-constants", len(up), kernel.looped(up), "conversion", kernel.where(up), says)


def _index_arithmetic(kernel: _Kernel) -> Iterator[CodeFinding]:
    for loop in _inner(kernel.facts):
        integer = loop.by_kind.get("integer", 0)
        if loop.instructions >= LEAST_LOOP and integer >= LEAST_INTEGER_SHARE * loop.instructions:
            first = kernel.listing.offsets[loop.first]
            says = f"{integer} of {loop.instructions} instructions of the loop at {first:#x} are integer arithmetic"
            yield CodeFinding("index-arithmetic", integer, integer, "inst", kernel.where(sorted(loop.places)), says)
            return


def _no_tensor_cores(kernel: _Kernel) -> Iterator[CodeFinding]:
    """Inner loops that load and sum products (matrix product, convolution, dot product) without tensor cores."""
    if kernel.facts.tensor:
        return
    for loop in _inner(kernel.facts):
        sums = [place for place in loop.places if _adds_product(_at(kernel, place))]
        float_work = loop.by_kind.get("fp32", 0) + loop.by_kind.get("fp16", 0)
        loads = sum(loop.opcodes[one] for one in ("LDG", "LDS", "LD"))
        if len(sums) >= LEAST_PRODUCTS and loads >= 2 and len(sums) >= PRODUCT_SHARE * float_work:
            first = kernel.listing.offsets[loop.first]
            says = f"the loop at {first:#x} adds {len(sums)} products to sums, and no tensor instruction does"
            yield CodeFinding("tensor-cores", len(sums), len(sums), "inst", kernel.where(sorted(sums)), says)
            return


def _adds_product(one: Instruction) -> bool:
    """True for a multiply-add whose addend is any register: an unrolled sum uses several accumulators."""
    return one.opcode in ("FFMA", "HFMA2", "FFMA2") and len(one.operands) >= 4 and one.operands[3].startswith("R")


def _inner(facts: StaticFacts) -> Iterator[Loop]:
    inner = (one for one in facts.loops if one.is_inner)
    return iter(sorted(inner, key=lambda one: -one.instructions))


LEVERS: tuple[Callable[[_Kernel], Iterator[CodeFinding]], ...] = (
    _spills, _local_arrays, _no_tensor_cores, _slow_division, _float_constants, _index_arithmetic, _narrow_accesses,
)  # fmt: skip
"""The levers in the order in which findings are listed."""
