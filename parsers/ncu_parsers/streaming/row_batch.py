"""The rows of some thousand launches of a long page, as they are recognised and before they are read."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO

import numpy as np

from ncu_parsers.ncu.csv_pages import NVTX_TITLES, LongPage
from ncu_parsers.streaming.launch_columns import Codes, Rules
from ncu_parsers.streaming.line_accounting import IDENTITY_TITLES, NotCertain

BYTES_OF_A_STRETCH = 3_000_000
"""Of tails: some 33,000 rows."""

TAIL_TITLES = {"Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Metric Value"}


@dataclass(frozen=True)
class Layout:
    """The columns of a long page: those of the launch in front, then `tail`, which ends with the value."""

    identity: tuple[str, ...]
    tail: tuple[str, ...]

    @classmethod
    def of(cls, page: LongPage) -> Layout:
        """The layout of a page. Raises `NotCertain` for one that is not read here."""
        width = len(page.identity_columns)
        identity, tail = page.header[:width], page.header[width : page.value_at + 1]
        known = all(title in IDENTITY_TITLES or title.startswith(NVTX_TITLES) for title in identity)
        if (
            page.delimiter != ","
            or not page.quoted
            or not known
            or identity[:2] != ["ID", "Process ID"]
            or "Kernel Name" not in identity
            or len(set(page.header)) != len(page.header)
            or set(tail) - TAIL_TITLES
            or tail[-1:] != ["Metric Value"]
            or "Metric Name" not in tail
            or TAIL_TITLES & set(page.header[page.value_at + 1 :])
        ):
            raise NotCertain("its columns are unusual")
        return cls(tuple(identity), tuple(tail))


class RuleLines:
    """Lines of rules: what each says, and the place of the launch it says it of.

    What is said is the place of a rule among those that are kept for all stretches, to which others may be put behind
    while this one is read, or, counted down from -1, among its own. One and the same object is kept once.
    """

    def __init__(self, kept: Sequence[dict[str, str]]) -> None:
        """None so far."""
        self._kept = kept
        self._own: list[dict[str, str]] = []
        self._place_of: dict[int, int] = {}
        self._codes = array("i")
        self._launches = array("i")

    def add(self, launch: int, rule: dict[str, str]) -> None:
        """Take a line that says what is not kept."""
        place = self._place_of.setdefault(id(rule), len(self._own))
        if place == len(self._own):
            self._own.append(rule)
        self._codes.append(-1 - place)
        self._launches.append(launch)

    def extend(self, codes: Codes, launches: Codes) -> None:
        """Take lines that say what is kept."""
        self._codes.frombytes(np.ascontiguousarray(codes, np.intc).tobytes())
        self._launches.frombytes(np.ascontiguousarray(launches, np.intc).tobytes())

    def by_launch(self, launches: int) -> Rules | None:
        """What is said of each of so many launches; None where nothing is."""
        if not self._codes:
            return None
        kept = list(self._kept)
        of, codes = (np.array(numbers, np.int64) for numbers in (self._launches, self._codes))
        codes = np.where(codes < 0, len(kept) - 1 - codes, codes)[np.argsort(of, kind="stable")]
        return Rules([*kept, *self._own], codes, np.bincount(of, minlength=launches))


@dataclass
class Stretch:
    """Rows of some launches: what the rows of each launch begin with, the tails, and whose they are.

    A run is a number of rows of one launch that follow each other; a page, told by its number among those of the file,
    begins at a launch. Tails are written behind each other as they are met, which costs less than keeping each and
    joining them; `endings` are what may stand behind the last quote of one. `judged` says that each line was looked at:
    what is odd in one of them is accounted for.
    """

    layout: Layout
    prefixes: list[bytes] = field(default_factory=list)
    tails: BytesIO = field(default_factory=BytesIO)
    rows: int = 0
    run_launches: list[int] = field(default_factory=list)
    run_starts: list[int] = field(default_factory=list)
    rules: RuleLines = field(default_factory=lambda: RuleLines([]))
    places: dict[bytes, int] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)
    indexed: int = 0
    endings: set[bytes] = field(default_factory=set)
    pages: list[tuple[int, int]] = field(default_factory=list)
    judged: bool = False

    @property
    def room(self) -> int:
        """For so many bytes of tails; none is left for another launch where it is not above zero."""
        return BYTES_OF_A_STRETCH - self.tails.tell()

    def begin_page(self, page: int) -> None:
        """Launches that follow are of another page, even if they begin like earlier ones."""
        self.places, self.latest, self.indexed = {}, {}, len(self.prefixes)
        if self.pages and self.pages[-1][0] == len(self.prefixes):
            self.pages.pop()
        self.pages.append((len(self.prefixes), page))

    def latest_of(self, ids: bytes) -> int | None:
        """The launch of these ids that was met last in the page."""
        for place in range(self.indexed, len(self.prefixes)):
            self.latest[ids_of(self.prefixes[place])] = place
        self.indexed = len(self.prefixes)
        return self.latest.get(ids)


def ids_of(prefix: bytes) -> bytes:
    """The cells of launch and process id, as printed."""
    return prefix[: prefix.index(b'"', prefix.index(b'","') + 3) + 1]
