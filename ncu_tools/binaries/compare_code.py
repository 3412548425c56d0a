"""Kernels of two builds, matched by name and signature, and their code compared.

Code is the same if its bytes are, or if its instructions are without the numbers of registers and labels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from functools import cached_property, partial

from ncu_parsers.binaries.code_files import FoundKernel
from ncu_parsers.binaries.kernel_resources import KernelResources

from ncu_tools.binaries.code_names import code_path, full_code_name, readable_code_name
from ncu_tools.binaries.kernel_listing import CodeListing, has_disassembler, listing_of, normalised
from ncu_tools.binaries.occupancy_of_code import BlockOccupancy, demanded_threads, occupancy_for, threads_of
from ncu_tools.binaries.static_facts import facts_of
from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters

_HASHES = re.compile(r"(_GLOBAL__N__|_INTERNAL_)[0-9a-f]{8}(_\d+_\w+?_)[0-9a-f]{8}(?:_\d+)?")
"""Hashes that a compiler puts into the names of unnamed namespaces and files; they differ in each build."""
MOST_DISASSEMBLED = 2000
"""Most pairs of kernels whose instructions are compared, some six minutes; PyTorch has libraries of 144,640."""
SHOWN_AROUND = 2
"""Unchanged instructions that a diff shows on each side of a change."""


class CodeChange(Enum):
    """How a kernel's code differs between two builds."""

    SAME = "same code"
    CHANGED = "changed"
    BYTES_DIFFER = "bytes differ"
    NEW = "new"
    GONE = "gone"

    def of(self, kernels: int) -> str:
        """A number of kernels in words: "3 changed", or "3 of other bytes" as "3 bytes differ" would be about bytes."""
        return f"{kernels:,} {'of other bytes' if self is CodeChange.BYTES_DIFFER else self.value}"


@dataclass(frozen=True)
class CodePair:
    """A kernel in both builds, or in one; `either` is that of the new build if it has one.

    `by_kind` are instructions by kind in the base and the new build. `BYTES_DIFFER` means that the instructions were
    not compared: perhaps only registers were renumbered.
    """

    either: FoundKernel
    base: FoundKernel | None
    new: FoundKernel | None
    change: CodeChange
    by_kind: tuple[dict[str, int], dict[str, int]] | None = None

    @property
    def signature_changed(self) -> bool:
        """True if the kernels are matched by name but take different arguments."""
        if self.base is None or self.new is None:
            return False
        names = self.base.resources.name, self.new.resources.name
        return names[0] != names[1] and _full_name(names[0]) != _full_name(names[1])

    def values(self, measure: str) -> tuple[float | None, float | None]:
        """A measure of `MEASURES` in the base and the new build; None where it is unknown."""
        if measure == "instructions":
            if self.by_kind is not None:
                return sum(self.by_kind[0].values()), sum(self.by_kind[1].values())
            return None, None
        if measure == "occupancy":
            return tuple(one.fraction if one is not None and one.blocks else None for one in self._occupancies)  # type: ignore[return-value]
        value = MEASURES[measure]
        return tuple(None if one is None else value(one.resources) for one in (self.base, self.new))  # type: ignore[return-value]

    @property
    def misfit(self) -> str:
        """Which build cannot launch the block size compared, in words; "" if both can, or if it is unknown."""
        sides = zip(("old", "new"), self._occupancies, strict=True)
        return "; ".join(
            f"no block of {one.threads:,} threads fits the {side} code"
            for side, one in sides if one is not None and not one.blocks
        )  # fmt: skip

    @cached_property
    def _occupancies(self) -> tuple[BlockOccupancy | None, BlockOccupancy | None]:
        """The theoretical occupancy of both builds, each for its required block size if both require one.

        Else both are for one block size: the one that a build requires, else the smaller bound of their launch bounds.
        """
        sides = [one.resources for one in (self.base, self.new) if one is not None]
        demanded = [threads for one in sides if (threads := demanded_threads(one))]
        blocks = dict(zip(map(id, sides), demanded, strict=False)) if len(demanded) == len(sides) else {}
        told = [threads for threads, is_known in map(threads_of, sides) if is_known]
        common = min(demanded or told or [threads_of(one)[0] for one in sides])

        def occupancy(one: FoundKernel | None) -> BlockOccupancy | None:
            return None if one is None else occupancy_for(one.resources, blocks.get(id(one.resources), common))

        return occupancy(self.base), occupancy(self.new)


MEASURES: dict[str, Callable[[KernelResources], float | None]] = {
    "registers": lambda one: one.registers,
    "spills": lambda one: None if one.spills is None else one.spills.bytes,
    "stack": lambda one: one.stack_bytes,
    "shared": lambda one: one.shared_bytes,
    "occupancy": lambda one: None,
    "instructions": lambda one: None,
}
"""Measures of gates and tables, from one build's kernel; occupancy and instructions need both builds."""


def compared_code(base: Sequence[FoundKernel], new: Sequence[FoundKernel]) -> Iterator[CodePair]:
    """Every kernel of two builds, matched, in the order of the base; new kernels follow.

    Instructions are compared for the first `MOST_DISASSEMBLED` pairs whose bytes differ.
    """
    left = MOST_DISASSEMBLED
    for one, other in matched(base, new):
        if other is None and one is not None:
            yield CodePair(one, one, None, CodeChange.GONE)
        elif other is not None and one is None:
            yield CodePair(other, None, other, CodeChange.NEW)
        elif one is None or other is None:
            continue
        elif one.resources.code_digest and one.resources.code_digest == other.resources.code_digest:
            yield CodePair(other, one, other, CodeChange.SAME)
        elif left:
            left -= 1
            yield _by_instructions(one, other)
        else:
            yield CodePair(other, one, other, CodeChange.BYTES_DIFFER)


def _by_instructions(base: FoundKernel, new: FoundKernel) -> CodePair:
    listings = _listings(base, new)
    if listings is None:
        return CodePair(new, base, new, CodeChange.BYTES_DIFFER)
    one, other = listings
    is_same = [*map(normalised, one.texts)] == [*map(normalised, other.texts)]
    by_kind = facts_of(one).by_kind, facts_of(other).by_kind
    return CodePair(new, base, new, CodeChange.SAME if is_same else CodeChange.CHANGED, by_kind)


def _listings(base: FoundKernel, new: FoundKernel) -> tuple[CodeListing, CodeListing] | None:
    """The instructions of both kernels; None where a licence forbids disassembly, or nvdisasm is not installed."""
    if base.closed_library or new.closed_library or not has_disassembler():
        return None
    one, other = listing_of(base), listing_of(new)
    return None if one is None or other is None else (one, other)


def matched(
    base: Sequence[FoundKernel], new: Sequence[FoundKernel]
) -> list[tuple[FoundKernel | None, FoundKernel | None]]:
    """Pairs of kernels of two builds, in the order of the base; None in place of a kernel that one build lacks.

    Kernels are matched by mangled name and architecture, then by demangled name without hashes of the build, then by
    name without parameters and by name alone, where each build has just one. Among kernels of equal name, as in a
    cache, those of equal code are matched first, then those in files of equal name, then the rest in order.
    """
    pairs, left, right = list[tuple[FoundKernel | None, FoundKernel | None]](), list(base), list(new)
    for name in (str, _full_name):
        for rule in (_by_code, _by_file, _by_name):
            pairs += _take_pairs(left, right, partial(rule, name))
    for name in (_without_parameters, code_path):
        pairs += _take_pairs(left, right, partial(_by_name, name), only_single=True)
    place = {id(one): number for number, one in enumerate(base)}
    pairs.sort(key=lambda pair: place[id(pair[0])])
    known = {id(one): (one, other) for one, other in pairs}
    in_order = [known.get(id(one), (one, None)) for one in base]
    return [*in_order, *((None, one) for one in right)]


def _take_pairs(
    left: list[FoundKernel],
    right: list[FoundKernel],
    key: Callable[[FoundKernel], Hashable],
    *,
    only_single: bool = False,
) -> list[tuple[FoundKernel | None, FoundKernel | None]]:
    """Remove the kernels with equal keys from both lists, and return them as pairs."""
    sides: tuple[dict[Hashable, list[FoundKernel]], ...] = (defaultdict(list), defaultdict(list))
    for side, kernels in zip(sides, (left, right), strict=True):
        for one in kernels:
            side[key(one)].append(one)
    pairs = [
        pair
        for name, ones in sides[0].items()
        if name in sides[1] and not (only_single and (len(ones) > 1 or len(sides[1][name]) > 1))
        for pair in zip(ones, sides[1][name], strict=False)
    ]
    taken = {id(one) for pair in pairs for one in pair}
    for kernels in (left, right):
        kernels[:] = [one for one in kernels if id(one) not in taken]
    return list[tuple[FoundKernel | None, FoundKernel | None]](pairs)


def _full_name(mangled: str) -> str:
    return _HASHES.sub(r"\1\2", full_code_name(mangled))


def _without_parameters(mangled: str) -> str:
    return drop_parameters(_full_name(mangled))


def _by_code(name: Callable[[str], str], kernel: FoundKernel) -> Hashable:
    return _by_name(name, kernel), kernel.resources.code_digest or object()


def _by_file(name: Callable[[str], str], kernel: FoundKernel) -> Hashable:
    return _by_name(name, kernel), kernel.path.rpartition("/")[2]


def _by_name(name: Callable[[str], str], kernel: FoundKernel) -> Hashable:
    return name(kernel.resources.name), kernel.resources.architecture


# ------------------------------------------------------------------------------------------------------- what differs


@dataclass(frozen=True)
class DiffLine:
    """A line of a diff: the mark " ", "-" or "+", the text of the instruction, and its offset in its build."""

    mark: str
    text: str
    offset: int


def diff_of(pair: CodePair) -> list[DiffLine] | None:
    """The instructions that differ, with some around; None if they cannot be read, [] if the code is the same."""
    if pair.base is None or pair.new is None or pair.change is CodeChange.SAME:
        return []
    listings = _listings(pair.base, pair.new)
    if listings is None:
        return None
    one, other = listings
    matcher = SequenceMatcher(None, [*map(normalised, one.texts)], [*map(normalised, other.texts)], autojunk=False)
    return [
        line
        for group in matcher.get_grouped_opcodes(SHOWN_AROUND)
        for operation in group
        for line in _lines(operation, one, other)
    ]


def _lines(operation: tuple[str, int, int, int, int], base: CodeListing, new: CodeListing) -> Iterator[DiffLine]:
    kind, first, last, begin, end = operation
    if kind == "equal":
        yield from (DiffLine(" ", new.texts[place], new.offsets[place]) for place in range(begin, end))
        return
    yield from (DiffLine("-", base.texts[place], base.offsets[place]) for place in range(first, last))
    yield from (DiffLine("+", new.texts[place], new.offsets[place]) for place in range(begin, end))


@dataclass
class CodeSummary:
    """Kernels by `CodeChange`, and their changes of resources in words, the gravest first."""

    counts: dict[CodeChange, int] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)


GRAVEST = ("spills", "occupancy", "registers", "shared", "instructions")


def summary_of(pairs: Iterable[CodePair]) -> CodeSummary:
    """Count the kernels by change, and describe the changes of their resources."""
    found, ranked = CodeSummary(), list[tuple[int, float, str]]()
    for pair in pairs:
        found.counts[pair.change] = found.counts.get(pair.change, 0) + 1
        name = readable_code_name(pair.either.resources.name)
        if pair.base is not None and pair.new is not None and pair.misfit:
            ranked.append((GRAVEST.index("occupancy"), -1.0, f"{name}: {pair.misfit}"))
        for rank, measure in enumerate(GRAVEST):
            before, after = pair.values(measure)
            if before is not None and after is not None and before != after:
                ranked.append((rank, -abs(after - before), f"{name}: {in_words(measure, before, after)}"))
    found.changes = [words for _, _, words in sorted(ranked)]
    return found


def in_words(measure: str, before: float, after: float) -> str:
    """A change as "spills 0 -> 48 bytes"."""
    if measure == "occupancy":
        return f"occupancy {100 * before:.1f} -> {100 * after:.1f} %"
    unit = {"spills": " bytes", "stack": " bytes", "shared": " bytes"}.get(measure, "")
    what = {"shared": "static shared memory"}.get(measure, measure)
    return f"{what} {before:,.0f} -> {after:,.0f}{unit}"
