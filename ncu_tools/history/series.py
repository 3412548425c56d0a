"""The series of a history: what each kernel, layer, category, step or point was in each run, through its renames.

Values of a kernel are per launch, of a layer or category per iteration where iterations are known, and of a point as
measured. A kernel keeps its series when its name changes by the rules of `compare` (`kernels.matching.kernel_pairs`).
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
"""Stands for what all series have in common: the median over them."""
SHAPES = "shapes"
"""A number that is another one where launches have other grids, blocks or ranges, or another mix of them."""
ONE_STEP = "step"


@dataclass(frozen=True)
class Renamed:
    """A series that has another name from run `run` on: what it was called before, and the evidence for that."""

    series: int
    run: int
    was: str
    matched_by: str


@dataclass
class History:
    """Runs in order, and the series of all of their kernels (or what else `noun` is), by their last names.

    `blocks` has for each run the series of its rows, and their values of each quantity of `watched`; what is as in the
    run before is the same array, so that counts take no memory.
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
        """The last name of a series, or of the median over all (`EVERY`)."""
        return self.names[series] if series != EVERY else f"all {plural(self.noun)}"

    def has(self, quantity: str) -> bool:
        """True if any run knows the quantity of any series."""
        if quantity not in self.watched:
            return False
        row = self.watched.index(quantity)
        return any(not np.isnan(block[row]).all() for _, block in self.blocks)


def history_of(runs: Sequence[RunSummary], by: str = KERNEL) -> History:
    """The series of runs in order, a series per kernel, layer, category or step; of measured points per point.

    The sums of the runs are used up.
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
        run.sums = {}  # thousands of runs do not fit twice
    history.names, history.renamed = numbering.names, numbering.renamed
    return history


# -------------------------------------------------------------------------------------------------- rows of runs


class _Named:
    """Numbers rows by a title that stays the same over the runs."""

    def __init__(self, titles: Callable[[RunSummary], Sequence[str]]) -> None:
        self._titles = titles
        self._numbers: dict[str, int] = {}
        self.renamed: list[Renamed] = []

    @property
    def names(self) -> list[str]:
        """The titles of all series."""
        return list(self._numbers)

    def __call__(self, run: RunSummary) -> Places:
        """The series of each row of a run."""
        titles = self._titles(run)
        return np.array([self._numbers.setdefault(title, len(self._numbers)) for title in titles], np.int64)


def _layers(run: RunSummary) -> list[str]:
    modules, phases = (tables.words(run.titles, name) for name in ("module", "phase"))
    return [f"{module or NO_MODULE} {phase or NO_PHASE}" for module, phase in zip(modules, phases, strict=True)]


def _categories(run: RunSummary) -> list[str]:
    names = arrays.one(run.titles.column("kernel"))
    return [str(one) for one in category_of_rows(names, arrays.dictionary([None] * len(run.titles))).to_pylist()]


class _Kernels:
    """Numbers rows by kernel, through renames: by full name in any run before, else as `compare` pairs what is left.

    Runs with the same names, grids, blocks and ranges have the same numbers, which are looked up by these.
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
        """The series of each row of a run, which comes after those before."""
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
        """Give new names the series of kernels of the last run that they took the place of."""
        here = set(spelled)
        gone = _only(before, [normalised_name(name) not in here for name in before.names])
        fresh = _only(new, [name not in self._by_name for name in spelled])
        for pair in pair_kernels(gone, fresh).pairs:
            if pair.matched_by is not None and pair.was is not None and pair.kernel != pair.was:
                self._rename(pair)

    def _rename(self, pair: Pair) -> None:
        was, now = normalised_name(str(pair.was)), normalised_name(pair.kernel)
        series = self._by_name.get(was)
        if series is None or now in self._by_name:  # one of several kernels in a pair has no series of its own
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
    """The signatures of some of the names."""
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
    """The series of a run, and their values: a row per quantity."""
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
    """The values, or the equal ones of the run before, that memory holds already."""
    return before if np.array_equal(before, values, equal_nan=True) else values.copy()


def _mix(run: RunSummary, place: Places, count: int, hashes: dict[str, Floats]) -> Floats:
    """A number for the launches of each series by grid, block and range: equal where the mix is."""
    identity = run.facts.identity
    if identity not in hashes:
        shapes, ranges = (tables.words(run.titles, name) for name in ("shape", "range"))
        hashes[identity] = np.array([_hash(f"{shape} {path}") for shape, path in zip(shapes, ranges, strict=True)])
    launches = run.column(LAUNCHES)
    share = launches / np.bincount(place, launches, count)[place]
    return np.round(np.bincount(place, hashes[identity] * share, count), 6)


def _hash(text: str) -> float:
    """A number from 0 to 1 that follows from a text, the same in every process."""
    return zlib.crc32(text.encode("utf-8", "replace")) / 2**32
