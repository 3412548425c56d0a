"""Which columns of a page are read as what: the layouts of long and of wide pages."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ncu_parsers.ncu.csv_pages import IDENTITY_OF_LAUNCHES, NVTX_TITLES, LongPage, WidePage, is_rule
from ncu_parsers.report_data.metric_labels import metric_of_label
from ncu_parsers.streaming.cells.rows import IDENTITY_KINDS, Kind, Layout, Mask, NotStreamed, Rows

SECTION, BODY, LABEL, UNIT, VALUE = "Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Metric Value"

MOST_COLUMNS = 4000
"""Of more columns a block holds a few rows at most."""


def long_layout(page: LongPage) -> Layout:
    """The layout of a long page. Raises `NotStreamed` for one with other columns than ncu writes."""
    if len(set(page.header)) != len(page.header) or "Process ID" not in page.column:
        raise NotStreamed("its columns are unusual")
    _require_known_identity(page.identity_columns)
    leading = next((at for at, title in enumerate(page.header) if title not in page.identity_columns), 0)
    kinds = {VALUE: Kind.NUMBERS, **IDENTITY_KINDS}
    columns = tuple((title, kinds.get(title, Kind.TEXTS)) for title in page.header)
    return Layout(columns, page.last_at + 1, leading, page.name_at, _is_compiled(page, columns[page.last_at + 1 :]))


def wide_layout(page: WidePage, mixed: Collection[int] = ()) -> Layout:
    """The layout of a wide page whose units are known; the metrics at the places `mixed` are words more often than not.

    Raises `NotStreamed` for one with other columns than ncu writes.
    """
    identity = {title: at for at, title in page.other_columns}
    names = metric_names(page)
    if (
        page.kind != "wide"
        or len(page.header) > MOST_COLUMNS
        or len(identity) != len(page.other_columns)
        or len(set(names)) != len(names)
    ):
        raise NotStreamed("its columns are unusual")
    _require_known_identity(identity)
    columns = [("", Kind.TEXTS)] * len(page.header)
    for title, at in identity.items():
        columns[at] = title, IDENTITY_KINDS.get(title, Kind.TEXTS)
    for place, at in enumerate(page.metric_columns):
        columns[at] = metric_title(place), Kind.MIXED if place in mixed else Kind.NUMBERS
    return Layout(tuple(columns), len(columns), is_compiled=_is_compiled(page, []))


def _require_known_identity(titles: Collection[str]) -> None:
    """Raise `NotStreamed` for a page with identity columns that `launch_columns` does not know."""
    known = all(title in IDENTITY_OF_LAUNCHES or title.startswith(NVTX_TITLES) for title in titles)
    if not known or not {"ID", "Kernel Name"} <= set(titles):
        raise NotStreamed("its columns are unusual")


def _is_compiled(page: LongPage | WidePage, optional: Collection[tuple[str, Kind]]) -> bool:
    """Whether the compiled loop knows the page's delimiter and quotes; the columns a row may lack are texts."""
    return page.delimiter == "," and page.quoted and all(kind is Kind.TEXTS for _, kind in optional)


def metric_title(place: int) -> str:
    """What the column of a wide page's metric is called among those of rows, as no identity column is."""
    return str(place)


def metric_names(page: WidePage) -> list[str]:
    """The metrics of a wide page, by place."""
    return [metric_of_label("", "", page.titles[at]).name for at in page.metric_columns]


def rules_among(rows: Rows) -> Mask:
    """Which rows of a long page are rules (bool, one per row)."""
    labels = rows.texts[LABEL]
    mask: Mask = np.array([is_rule(label) for label in labels.words], bool)[labels.codes]
    return mask
