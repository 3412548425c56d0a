"""Find the call that launched each row of a trace, even if processes in one file use the same correlation ids.

Every process counts its correlation ids from the same start, so a file of several processes may hold an id several
times. GPU work names the operator around its call by an `External id`, which identifies the process if only one has an
operator or call with that id. If several have it, the device decides, provided each of these processes has its own.
Rows that are still ambiguous have no call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ncu_parsers.timelines.activity.activity import MISSING, Integers


class Work(NamedTuple):
    """Origin of GPU operations, a value for each."""

    correlation: Integers
    external: Integers
    device: Integers


class Calls(NamedTuple):
    """Calls of the runtime, a value for each; `process` is any number that identifies their process."""

    correlation: Integers
    external: Integers
    process: Integers


class OperatorIds(NamedTuple):
    """Process and external id of each operator that has one."""

    process: Integers
    external: Integers


class FoundCalls(NamedTuple):
    """Index of each row's call, -1 if unknown; `ambiguous` counts rows that fit several processes."""

    places: Integers
    ambiguous: int


def calls_that_launched(work: Work, calls: Calls, operators: OperatorIds) -> FoundCalls:
    """The call that launched each row: the first with its correlation id, in the process that the row fits."""
    first = _first_calls(calls.correlation, work.correlation)
    shared = _shared_ids(calls.correlation, calls.process)
    unclear = np.isin(work.correlation, shared)
    if not unclear.any():
        return FoundCalls(first, 0)
    candidates = _first_of_processes(calls.correlation, calls.process, shared)
    externals = _Externals(calls, operators)
    fits = {
        row: externals.fitting(int(work.external[row]), candidates[int(work.correlation[row])])
        for row in np.flatnonzero(unclear).tolist()
    }
    owners = _owners(work, fits, np.where(unclear | (first < 0), MISSING, calls.process[first]))
    ambiguous = 0
    for row, found in fits.items():
        chosen = _by_device(found, int(work.device[row]), owners) if len(found) > 1 else found
        first[row] = next(iter(chosen.values())) if len(chosen) == 1 else -1
        ambiguous += len(chosen) != 1
    return FoundCalls(first, ambiguous)


def _first_calls(known: Integers, wanted: Integers) -> Integers:
    """First index of each wanted id among the known ones; -1 for none, and for ids that are `MISSING`."""
    if not len(known):
        return np.full(len(wanted), -1)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    found = order[at]
    return np.where((known[found] == wanted) & (wanted != MISSING), found, -1)


def ambiguous_note(rows: int) -> str:
    """The note on rows whose launching process is unknown."""
    return (
        f"processes in this file have the same correlation ids: of {rows} rows neither External id nor device tells "
        "which of them launched it, so they count as without a launching call"
    )


def _shared_ids(correlation: Integers, process: Integers) -> Integers:
    """The correlation ids used in calls of several processes."""
    if len(np.unique(process)) < 2:
        return np.empty(0, np.int64)
    pairs = np.unique(np.stack([correlation, process]), axis=1)
    ids, counts = np.unique(pairs[0], return_counts=True)
    return ids[counts > 1]


def _first_of_processes(correlation: Integers, process: Integers, shared: Integers) -> dict[int, dict[int, int]]:
    """Shared id -> process -> the first call with that id."""
    found: dict[int, dict[int, int]] = {}
    for call in np.flatnonzero(np.isin(correlation, shared)).tolist():
        found.setdefault(int(correlation[call]), {}).setdefault(int(process[call]), call)
    return found


class _Externals:
    """The external ids of calls, and of each process's operators."""

    def __init__(self, calls: Calls, operators: OperatorIds) -> None:
        self._of_calls = calls.external
        self._of_operators: dict[int, set[int]] = {}
        for one in np.unique(calls.process).tolist():
            self._of_operators[one] = set(operators.external[operators.process == one].tolist())

    def fitting(self, external: int, candidates: dict[int, int]) -> dict[int, int]:
        """Candidates (a call per process) with this external id, else calls without an id beside an operator with it.

        Without an external id every candidate fits.
        """
        if external == MISSING:
            return candidates
        named = {process: call for process, call in candidates.items() if self._of_calls[call] == external}
        if named:
            return named
        return {
            process: call
            for process, call in candidates.items()
            if self._of_calls[call] == MISSING and external in self._of_operators[process]
        }


def _owners(work: Work, fits: dict[int, dict[int, int]], certain: Integers) -> dict[int, int]:
    """Device -> the only process that all its work fits, if there is one."""
    possible: dict[int, set[int]] = {}
    for device in np.unique(work.device).tolist():
        known = np.unique(certain[(work.device == device) & (certain != MISSING)]).tolist()
        if device != MISSING and len(known) < 2:
            possible[device] = set(known)
    for row, found in fits.items():
        device = int(work.device[row])
        if found and device in possible:
            possible[device] = possible[device] & set(found) if possible[device] else set(found)
            if not possible[device]:
                del possible[device]  # used by several processes
    return {device: next(iter(found)) for device, found in possible.items() if len(found) == 1}


def _by_device(found: dict[int, int], device: int, owners: dict[int, int]) -> dict[int, int]:
    """The process that owns the device, if each of the others owns another device; else all candidates."""
    owner = owners.get(device)
    others = set(found) - {owner}
    is_told = owner in found and others <= {one for place, one in owners.items() if place != device}
    return {owner: found[owner]} if is_told and owner is not None else found
