"""The rows of some thousand launches of a long page, as they are recognised and before they are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO

from ncu_parsers.line_account import IDENTITY_TITLES, NotCertain
from ncu_parsers.ncu_csv import NVTX_TITLES, LongPage

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
    rules: dict[int, list[dict[str, str]]] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    latest: dict[bytes, int] = field(default_factory=dict)
    indexed: int = 0
    endings: set[bytes] = field(default_factory=set)
    pages: list[tuple[int, int]] = field(default_factory=list)
    judged: bool = False

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
