"""Instruction mix of a kernel: shares of warp instructions by kind, from counts per opcode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.derived.opcode_lists import named_instances

from ncu_tools.numbers.number_format import counted

OTHER = "other"
MOST_LISTED = 8
COUNTS = "sass__inst_executed_per_opcode{} (instances)"
COLUMNS = tuple(COUNTS.format(kind) for kind in ("_with_modifier_all", "_with_modifier_selective", ""))
"""Columns of counts per opcode in the table of launches, the most detailed first."""


@dataclass
class InstructionMix:
    """Warp instructions of the launches of one kernel, by kind, and the number of launches with counts."""

    kernel: str
    launches: int = 0
    counted_launches: int = 0
    by_kind: dict[str, float] = field(default_factory=dict)
    unlisted: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Warp instructions of all kinds."""
        return sum(self.by_kind.values())

    @property
    def of_a_launch(self) -> dict[str, float]:
        """Warp instructions by kind of a launch, the mean of those with counts."""
        return {kind: count / self.counted_launches for kind, count in self.by_kind.items()}

    def share(self, kind: str) -> float | None:
        """The share of a kind; None if no launch has counts."""
        return self.by_kind.get(kind, 0.0) / self.total if self.total else None


@lru_cache(maxsize=1)
def kinds() -> tuple[str, ...]:
    """Every kind of instruction, `OTHER` last."""
    return (*dict.fromkeys(_kind_by_opcode().values()), OTHER)


@lru_cache(maxsize=1)
def _kind_by_opcode() -> dict[str, str]:
    kinds_of = table_beside(__file__, "opcodes")
    return {opcode: kind for kind, opcodes in kinds_of.items() for opcode in opcodes.split()}


def opcodes_of(kind: str) -> list[str]:
    """The opcodes of a kind; those of none for `OTHER`."""
    return [opcode for opcode, own in _kind_by_opcode().items() if own == kind]


def kind_of(opcode: str) -> str:
    """The kind of an opcode with or without modifiers, such as "IMAD.MOV.U32"; `OTHER` if it is not listed."""
    known = _kind_by_opcode()
    parts = opcode.split(".")
    for name in (".".join(parts[:2]), parts[0], re.sub(r"^U", "", parts[0])):
        if name in known:
            return known[name]
    return OTHER


def mixes(launches: pa.Table) -> list[InstructionMix]:
    """The mix of every kernel of a table of launches, by full name, the one with the most instructions first."""
    found: dict[str, InstructionMix] = {}
    names = launches["kernel_name"].to_pylist()
    columns = [launches[name].to_pylist() for name in COLUMNS if name in launches.column_names]
    for place, name in enumerate(names):
        mix = found.setdefault(name, InstructionMix(name))
        mix.launches += 1
        text = next((column[place] for column in columns if column[place]), None)
        if text:
            mix.counted_launches += 1
            add(mix, named_instances(text) or {})
    return sorted(found.values(), key=lambda mix: -mix.total)


def mix_of(launches: pa.Table) -> InstructionMix | None:
    """The mix of all launches together; None if none has counts."""
    if not set(COLUMNS) & set(launches.column_names):
        return None
    whole = InstructionMix("")
    for mix in mixes(launches):
        whole.kernel = whole.kernel or mix.kernel
        whole.launches += mix.launches
        whole.counted_launches += mix.counted_launches
        for counts, more in ((whole.by_kind, mix.by_kind), (whole.unlisted, mix.unlisted)):
            for kind, count in more.items():
                counts[kind] = counts.get(kind, 0.0) + count
    return whole if whole.total else None


def add(mix: InstructionMix, executed: Mapping[str, float]) -> None:
    """Add warp instructions by opcode to a mix."""
    for opcode, count in executed.items():
        kind = kind_of(opcode)
        mix.by_kind[kind] = mix.by_kind.get(kind, 0.0) + count
        if kind == OTHER:
            mix.unlisted[opcode] = mix.unlisted.get(opcode, 0.0) + count


def mix_notes(found: Iterable[InstructionMix]) -> list[str]:
    """Notes on kernels without counts, and on opcodes of unknown kind."""
    found = list(found)
    notes = []
    without = [mix for mix in found if not mix.counted_launches]
    if without:
        notes.append(
            f"{counted(len(without), 'kernel has', 'kernels have')} no counts per opcode: ncu --section "
            "InstructionStats or --set full collects them, and binary reports hold them"
        )
    unlisted = sorted({opcode for mix in found for opcode in mix.unlisted})
    if unlisted:
        notes.append(f"{OTHER} are opcodes whose kind is not known: {', '.join(unlisted[:MOST_LISTED])}")
    return notes
