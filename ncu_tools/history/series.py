"""The series of a history: the values of each kernel, layer, category, step or point in every run, across renames.

Values of a kernel are per launch; of a layer or category per iteration, if iterations are known; of a point as
measured. A renamed kernel keeps its series, by the matching rules of `compare` (`kernels.matching.kernel_pairs`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.quantities import LAUNCHES, quantities
from ncu_tools.history.run_summary import VARIANCE, RunFacts, RunSummary
from ncu_tools.kernels.grouping import NO_MODULE, NO_PHASE
from ncu_tools.kernels.matching.kernel_pairs import Pair, pair_kernels
from ncu_tools.kernels.matching.launch_signatures import Signatures
from ncu_tools.kernels.names.categories import category_of_rows
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.numbers.number_format import plural

Places = npt.NDArray[np.int64]

KERNEL, LAYER, CATEGORY, STEP, POINT = "kernel", "layer", "category", "step", "point"
EVERY = -1
"""Index that stands for all series: the median over them."""
SHAPES = "shapes"
"""Quantity that changes if a series has launches of other grids, blocks or ranges, or another mix of them."""
ONE_STEP = "step"


@dataclass(frozen=True)
class Renamed:
    """A renaming of a series at run `run`: its former name, and the evidence for the match."""

    series: int
    run: int
    was: str
    matched_by: str


@dataclass
class History:
    """Runs in order, and the series of their kernels (or other `noun`), each under its latest name.

    `blocks` has for each run the indices of its series, and their values of each quantity in `watched`. Values equal to
    those of the run before share its array, so that unchanged counts take no memory.
    """

    noun: str
    runs: list[str]
    facts: list[RunFacts]
    names: list[str]
    watched: tuple[str, ...]
    blocks: list[tuple[Places, list[Floats]]]
    renamed: list[Renamed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def values(self, quantity: str) -> Floats:
        """The values of a quantity, shape (runs, series); NaN where a run lacks the series or the quantity."""
        result = np.full((len(self.runs), len(self.names)), np.nan)
        if quantity in self.watched:
            row = self.watched.index(quantity)
            for run, (series, block) in enumerate(self.blocks):
                result[run, series] = block[row]
        return result

    def name_of(self, series: int) -> str:
        """The latest name of a series; "all kernels" (or other noun) for `EVERY`."""
        return self.names[series] if series != EVERY else f"all {plural(self.noun)}"

    def has(self, quantity: str) -> bool:
        """True if any run has a value of the quantity for any series."""
        if quantity not in self.watched:
            return False
        row = self.watched.index(quantity)
        return any(not np.isnan(block[row]).all() for _, block in self.blocks)


def history_of(runs: Sequence[RunSummary], by: str = KERNEL) -> History:
    """Combine runs in order into one series per kernel, layer, category or step; measured points into one per point.

    Deletes the sums of `runs` to save memory.
    """
    of_points = any(run.facts.points for run in runs)
    numbering: _Kernels | _Named
    if by == KERNEL:
        numbering = _Kernels(matched=not of_points)
    elif by == STEP:
        numbering = _Named(lambda run: [ONE_STEP] * len(run.titles))
    else:
        numbering = _Named(_layers if by == LAYER else _categories)
    watched = tuple(name for name in (*quantities(), VARIANCE) if any(name in run.sums for run in runs))
    watched = (*watched, SHAPES)
    history = History(
        POINT if of_points else by, [run.name for run in runs], [run.facts for run in runs], [], watched, []
    )
    hashes: dict[str, Floats] = {}
    for run in runs:
        series, block = _block(run, numbering(run), watched, hashes, per_launch=by == KERNEL)
        before = history.blocks[-1][1] if history.blocks else block
        history.blocks.append((series, [_shared(*pair) for pair in zip(before, block, strict=True)]))
        run.sums = {}  # thousands of runs do not fit into memory twice
    history.names, history.renamed = numbering.names, numbering.renamed
    return history


# -------------------------------------------------------------------------------------------------- rows of runs


class _Named:
    """Assigns rows to series by titles that do not change between runs."""

    def __init__(self, titles: Callable[[RunSummary], Sequence[str]]) -> None:
        self._titles = titles
        self._numbers: dict[str, int] = {}
        self.renamed: list[Renamed] = []

    @property
    def names(self) -> list[str]:
        """The titles of all series."""
        return list(self._numbers)

    def __call__(self, run: RunSummary) -> Places:
        """The index of the series of each row of a run."""
        titles = self._titles(run)
        return np.array([self._numbers.setdefault(title, len(self._numbers)) for title in titles], np.int64)


def _layers(run: RunSummary) -> list[str]:
    modules, phases = (tables.words(run.titles, name) for name in ("module", "phase"))
    return [f"{module or NO_MODULE} {phase or NO_PHASE}" for module, phase in zip(modules, phases, strict=True)]


def _categories(run: RunSummary) -> list[str]:
    names = arrays.one(run.titles.column("kernel"))
    return [str(one) for one in category_of_rows(names, arrays.dictionary([None] * len(run.titles))).to_pylist()]


class _Kernels:
    """Assigns rows to series by kernel name: a name known from any run before, else a match as in `compare`.

    Runs with the same names, grids, blocks and ranges get the same indices, which are cached.
    """

    def __init__(self, *, matched: bool) -> None:
        self._matched = matched
        self._by_name: dict[str, int] = {}
        self.names: list[str] = []
        self.renamed: list[Renamed] = []
        self._known: dict[str, tuple[Places, Signatures]] = {}
        self._last: tuple[Places, Signatures] | None = None
        self._runs = 0

    def __call__(self, run: RunSummary) -> Places:
        """The index of the series of each row of a run; runs must be given in order."""
        key = run.facts.identity
        if key not in self._known:
            signatures = _signatures(run)
            self._known[key] = self._numbered(signatures), signatures
        self._last = self._known[key]
        self._runs += 1
        return self._last[0]

    def _numbered(self, signatures: Signatures) -> Places:
        spelled = [normalised_name(name) for name in signatures.names]
        if self._matched and self._last is not None and any(name not in self._by_name for name in spelled):
            self._match(self._last[1], signatures, spelled)
        numbers = []
        for name, spelling in zip(signatures.names, spelled, strict=True):
            if spelling not in self._by_name:
                self._by_name[spelling] = len(self.names)
                self.names.append(name)
            numbers.append(self._by_name[spelling])
        return np.array(numbers, np.int64)[signatures.name_codes]

    def _match(self, before: Signatures, new: Signatures, spelled: Sequence[str]) -> None:
        """Match new names to kernels of the last run that are gone, and let them continue their series."""
        here = set(spelled)
        gone = _only(before, [normalised_name(name) not in here for name in before.names])
        fresh = _only(new, [name not in self._by_name for name in spelled])
        for pair in pair_kernels(gone, fresh).pairs:
            if pair.matched_by is not None and pair.was is not None and pair.kernel != pair.was:
                self._rename(pair)

    def _rename(self, pair: Pair) -> None:
        was, now = normalised_name(str(pair.was)), normalised_name(pair.kernel)
        series = self._by_name.get(was)
        if series is None or now in self._by_name:  # only one kernel of a pair keeps the series
            return
        self.renamed.append(Renamed(series, self._runs, self.names[series], str(pair.matched_by)))
        self._by_name[now] = series
        self.names[series] = pair.kernel


def _signatures(run: RunSummary) -> Signatures:
    codes, names = tables.codes(run.titles, "kernel")
    shapes, ranges = (tables.words(run.titles, name) for name in ("shape", "range"))
    places, used = np.unique(codes, return_inverse=True)
    return Signatures(
        used.reshape(-1).astype(np.int64),
        [names[place] or "?" for place in places.tolist()],
        list(shapes),
        list(ranges),
    )


def _only(side: Signatures, wanted: Sequence[bool]) -> Signatures:
    """The signatures of the kernels in the mask `wanted`."""
    rows = np.flatnonzero(np.array(wanted, bool)[side.name_codes]).tolist()
    codes = side.name_codes[rows]
    used, places = np.unique(codes, return_inverse=True)
    pick: Callable[[Sequence[Hashable]], list[Hashable]] = lambda values: [values[row] for row in rows]  # noqa: E731
    return Signatures(
        places.reshape(-1).astype(np.int64), [side.names[code] for code in used.tolist()],
        pick(side.shapes), pick(side.ranges),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ values of a run


def _block(
    run: RunSummary, rows: Places, watched: Sequence[str], hashes: dict[str, Floats], *, per_launch: bool
) -> tuple[Places, Floats]:
    """The indices of the series of a run, and their values: one row per quantity."""
    series, place = np.unique(rows, return_inverse=True)
    place = place.reshape(-1)
    count = len(series)
    launches = np.bincount(place, run.column(LAUNCHES), count)
    parts = launches if per_launch else float(run.facts.iterations or 1)
    block = np.full((len(watched), count), np.nan)
    known = quantities()
    for row, name in enumerate(watched):
        if name == SHAPES:
            block[row] = _mix(run, place, count, hashes)
            continue
        values = run.column(name)
        if np.isnan(values).all():
            continue
        if name in known and known[name].is_of_a_launch:
            np.fmax.at(block[row], place, values)
        elif name == LAUNCHES:
            block[row] = launches / (run.facts.iterations or 1)
        else:
            total = np.bincount(place, values, count)
            block[row] = total / (np.asarray(parts) ** 2 if name == VARIANCE else parts)
    return series, block


def _shared(before: Floats, values: Floats) -> Floats:
    """`values`, or the array of the run before if it is equal, to save memory."""
    return before if np.array_equal(before, values, equal_nan=True) else values.copy()


def _mix(run: RunSummary, place: Places, count: int, hashes: dict[str, Floats]) -> Floats:
    """A number per series for its mix of launches by grid, block and range; equal for equal mixes."""
    identity = run.facts.identity
    if identity not in hashes:
        shapes, ranges = (tables.words(run.titles, name) for name in ("shape", "range"))
        hashes[identity] = np.array([_hash(f"{shape} {path}") for shape, path in zip(shapes, ranges, strict=True)])
    launches = run.column(LAUNCHES)
    share = launches / np.bincount(place, launches, count)[place]
    return np.round(np.bincount(place, hashes[identity] * share, count), 6)


def _hash(text: str) -> float:
    """A number from 0 to 1, derived from a text, the same in every process."""
    return zlib.crc32(text.encode("utf-8", "replace")) / 2**32
