"""Lines, opcodes or functions of one kernel in two runs: which gained or lost samples and instructions.

Numbers of samples depend on the duration and rate of sampling, so samples are compared as shares of the kernel's.
Instructions are compared per launch. Lines are matched by their text if both runs know it, else by their number.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.source.kernel_code import KernelCode
from ncu_tools.kernels.source.source_text import SourceText
from ncu_tools.kernels.source.stalls import REASONS, dominant, stall_counts, stalls

LINE, OPCODE, FUNCTION = PLACES = ("line", "opcode", "function")

OWN = ""
"""The key of a kernel's own function."""
_HELPER = re.compile(r"^\$__internal_\d+_")

Keys = list[Any]


@dataclass(frozen=True)
class ComparedPlace:
    """A place in both runs; None if a run lacks it or did not collect the count.

    Shares are of the kernel's samples, `executed` are warp instructions per launch. In `share_change`, a place missing
    in one run counts as having no samples there.
    """

    place: str
    base_share: float | None
    new_share: float | None
    share_change: float | None
    base_executed: float | None
    new_executed: float | None
    executed_ratio: float | None
    base_stall: str | None
    new_stall: str | None
    is_in_base: bool
    is_in_new: bool


@dataclass
class _Side:
    """Sums of one run by place."""

    shares: dict[Any, float]
    executed: dict[Any, float]
    stall: dict[Any, str]
    places: dict[Any, str]


def compare_places(
    base: KernelCode, new: KernelCode, by: str, texts: tuple[SourceText, SourceText] = (SourceText(), SourceText())
) -> list[ComparedPlace]:
    """The places of either run, sorted by change of the share of samples, then of instructions."""
    keyed = [_keys(code, by, text) for code, text in zip((base, new), texts, strict=True)]
    if by == LINE:
        keyed = _by_text_where_both_know_it(*keyed)
    ours, theirs = (_side(code, keys, by) for code, keys in zip((base, new), keyed, strict=True))
    rows = [_compared(key, ours, theirs) for key in dict.fromkeys((*ours.places, *theirs.places))]
    return sorted(rows, key=lambda row: (-abs(row.share_change or 0), -_more_instructions(row)))


def _keys(code: KernelCode, by: str, text: SourceText) -> Keys:
    """A run-independent name for the place of each instruction; None if unknown."""
    if by == OPCODE:
        return list(code.table["opcode"].to_pylist())
    if by == FUNCTION:
        functions = code.table["function"].to_pylist()
        return [_function_key(name, own=name == functions[0]) for name in functions]
    files, lines = code.table["file"].to_pylist(), code.table["line"].to_pylist()
    return [
        None if line is None else ((file or "").rsplit("/", 1)[-1], line, text.of(file, line))
        for file, line in zip(files, lines, strict=True)
    ]


def _function_key(name: str | None, *, own: bool) -> str | None:
    """What a function is called in both runs: a kernel begins in its `own`, and the compiler numbers its helpers."""
    return OWN if own and name is not None else name and _HELPER.sub("$__internal_", name)


def _by_text_where_both_know_it(base: Keys, new: Keys) -> list[Keys]:
    """Lines named by file, text and index among lines with this text; without text by file and number."""
    knows_text = all(any(key is not None and key[2] for key in keys) for keys in (base, new))
    return [_named_lines(keys, knows_text=knows_text) for keys in (base, new)]


def _named_lines(keys: Keys, *, knows_text: bool) -> Keys:
    if not knows_text:
        return [None if key is None else key[:2] for key in keys]
    alike: Counter[tuple[str, str]] = Counter()
    names: dict[Any, Any] = {}
    for key in sorted({key for key in keys if key is not None}, key=lambda one: one[:2]):
        file, line, text = key
        names[key] = (file, line) if text is None else (file, text, alike[file, text])
        alike[file, text] += text is not None
    return [None if key is None else names[key] for key in keys]


def _side(code: KernelCode, keys: Keys, by: str) -> _Side:
    groups: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        if key is not None:
            groups.setdefault(key, []).append(row)
    samples, executed = code.counts("samples"), code.counts("inst_executed") / max(code.launches, 1)
    counts, whole = stall_counts(code), code.total("samples")
    side = _Side({}, {}, {}, {})
    for key, rows in groups.items():
        side.places[key] = _place(code, rows[0], by, key)
        if whole and not np.isnan(samples[rows]).all():
            side.shares[key] = float(np.nansum(samples[rows])) / whole
        if not np.isnan(executed[rows]).all():
            side.executed[key] = float(np.nansum(executed[rows]))
        top, share = dominant(counts[rows].sum(axis=0, keepdims=True))
        if not np.isnan(share[0]):
            side.stall[key] = stalls()[REASONS[top[0]]].title
    return side


def _place(code: KernelCode, row: int, by: str, key: Any) -> str:
    if by == FUNCTION:
        return readable_name(code.kernel_name) if key == OWN else str(code.table["function"][row].as_py())
    if by == OPCODE:
        return str(key)
    file, line = code.table["file"][row].as_py(), code.table["line"][row].as_py()
    return f"{(file or '?').rsplit('/', 1)[-1]}:{line}"


def _compared(key: Any, base: _Side, new: _Side) -> ComparedPlace:
    shares = [side.shares.get(key) for side in (base, new)]
    executed = [side.executed.get(key) for side in (base, new)]
    are_sampled = bool(base.shares) and bool(new.shares)
    names = [side.places[key] for side in (base, new) if key in side.places]
    return ComparedPlace(
        place=" → ".join(dict.fromkeys(names)),
        base_share=shares[0],
        new_share=shares[1],
        share_change=(shares[1] or 0.0) - (shares[0] or 0.0) if are_sampled else None,
        base_executed=executed[0],
        new_executed=executed[1],
        executed_ratio=_ratio(*executed),
        base_stall=base.stall.get(key),
        new_stall=new.stall.get(key),
        is_in_base=key in base.places,
        is_in_new=key in new.places,
    )


def _ratio(base: float | None, new: float | None) -> float | None:
    return new / base if base and new is not None else None


def _more_instructions(row: ComparedPlace) -> float:
    return abs((row.new_executed or 0) - (row.base_executed or 0))
