"""Tables of a session's measurements: one table per measuring tool and device, one line per measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ncu_tools.numbers.text_width import head_of, text_width

PREFIX = "ncu-bench "
BY, TIME, NOISE, MINIMUM, CALLS, CHANGE, COUNTS = PROPERTIES = (
    *(f"{PREFIX}{name}" for name in ("by", "time", "±", "min", "calls", "change", "counts")),
)
"""Properties of a test's report, in the order of the columns. Each measurement begins with the first."""
TITLES = ("test", *(name.removeprefix(PREFIX) for name in PROPERTIES[1:]))
Property = tuple[str, object]


def tables(
    reports: Iterable[tuple[str, Sequence[Property]]], width: int | None = None
) -> Iterator[tuple[str, list[str]]]:
    """For each tool and device, its title and the lines of its table; `reports` are tests with their properties.

    On a terminal of `width` columns, long counts are cut and the columns "calls" and "min" are left out.
    """
    rows: dict[str, list[tuple[str, ...]]] = {}
    for test, properties in reports:
        for one in _measurements(properties):
            cells = (one.get(name, "") for name in PROPERTIES[1:])
            rows.setdefault(one[BY], []).append((test, *cells))
    for by, found in rows.items():
        yield by, _aligned([TITLES, *found], width)


def _measurements(properties: Sequence[Property]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for name, value in properties:
        if name == BY:
            found.append({})
        if found and name in PROPERTIES:
            found[-1][name] = str(value)
    return found


def _aligned(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lines of columns: tests, changes and counts left-aligned, numbers right-aligned, without empty columns."""
    shown = [at for at in range(len(TITLES)) if any(row[at] for row in rows[1:])]
    sizes = {at: max(text_width(row[at]) for row in rows) for at in shown}
    for spare in (TITLES.index("calls"), TITLES.index("min")):
        if width is not None and spare in shown and sum(sizes[at] + 2 for at in shown) > width:
            shown.remove(spare)
    lines = []
    for row in rows:
        cells = []
        for at in shown:
            room = " " * (sizes[at] - text_width(row[at]))
            cells.append(room + row[at] if 0 < at < 5 else row[at] + room)
        line = "  ".join(cells).rstrip()
        lines.append(line if width is None or text_width(line) <= width else head_of(line, width - 1) + "…")
    return lines
