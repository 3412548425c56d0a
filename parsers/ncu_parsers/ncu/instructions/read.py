"""The instructions of a report, whatever its format: binary reports and source pages."""

from __future__ import annotations

import pyarrow as pa

from ncu_parsers.ncu.instructions.source_pages import read_source_pages
from ncu_parsers.sources.sources import Source


def read_instructions(source: Source) -> pa.Table | None:
    """The table of instructions of a report; None if it holds none.

    Raises `NcuBenchError` if the report cannot be read.
    """
    return read_source_pages(source)
