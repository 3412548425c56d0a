"""Pairs of kernels that the user names: --pair OLD=NEW."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from ncu_launch.errors import WrongUsage
from ncu_parsers.schema.tables import short_name

from ncu_tools.kernels.names.kernel_ids import is_kernel_id, of_ids
from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters, normalised_name

NEAR_NAMES = 3
_LEAST_ALIKE = 0.5


class AskedPair(NamedTuple):
    """The full names of kernels in the base and in the new runs meant by `OLD=NEW`."""

    text: str
    old: frozenset[str]
    new: frozenset[str]


def asked_pairs(texts: Sequence[str], base: Iterable[str], others: Sequence[Iterable[str]]) -> list[AskedPair]:
    """Resolve each `OLD=NEW` by the kernel names of the base and of each new run.

    A name may be full, without parameters, or short; a short one means all kernels that have it. Names may contain an
    equals sign: the first one with a known name on both sides counts. Raises `WrongUsage` if a name is in no run, or in
    two pairs of one run.
    """
    before, runs = set(base), [set(names) for names in others]
    found = [_asked(text, before, set().union(*runs)) for text in texts]
    for names in runs:
        there = [pair for pair in found if pair.new & names]
        for side, known in (("base", [pair.old for pair in there]), ("new run", [pair.new & names for pair in there])):
            _require_single(side, known)
    return found


def _asked(text: str, before: set[str], after: set[str]) -> AskedPair:
    splits = [(text[:at], text[at + 1 :]) for at, sign in enumerate(text) if sign == "="]
    if not splits:
        raise WrongUsage(f'--pair "{text}" names one kernel.', advice='Write --pair "OLD=NEW".')
    meant = [AskedPair(text, _names_meant(old, before), _names_meant(new, after)) for old, new in splits]
    complete = next((pair for pair in meant if pair.old and pair.new), None)
    if complete is not None:
        return complete
    at = next((place for place, pair in enumerate(meant) if pair.old or pair.new), 0)
    (old, new), pair = splits[at], meant[at]
    missing, side, known = (old, "base", before) if not pair.old else (new, "new run", after)
    names = sorted({*map(short_name, known), *known})
    near = get_close_matches(missing.strip(), names, NEAR_NAMES, _LEAST_ALIKE) or names[:NEAR_NAMES]
    raise WrongUsage(
        f'--pair "{text}": no kernel of the {side} is called {missing.strip() or "nothing"}.',
        f"Kernels there with a name like it: {', '.join(near)}.",
        "ncu-bench hotspots RUN lists the kernels of a run.",
    )


def _names_meant(text: str, names: set[str]) -> frozenset[str]:
    """The names that a text means: as a key of a kernel, or in the strictest spelling that matches any."""
    if is_kernel_id(text.strip()):
        return of_ids(names, [text.strip()])
    for spelling in (normalised_name, drop_parameters, short_name):
        wanted = text.strip() if spelling is short_name else spelling(text.strip())
        found = frozenset(name for name in names if spelling(name) == wanted)
        if found:
            return found
    return frozenset()


def _require_single(side: str, groups: Iterable[frozenset[str]]) -> None:
    seen: set[str] = set()
    for names in groups:
        twice = names & seen
        if twice:
            raise WrongUsage(f"--pair names {min(twice)} of the {side} twice.", advice="Name every kernel once.")
        seen |= names
