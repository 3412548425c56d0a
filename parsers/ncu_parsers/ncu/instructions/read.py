"""The instructions of a report, whatever its format: binary reports and source pages."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

import pyarrow as pa

from ncu_parsers.ncu_rep import MAGIC
from ncu_parsers.sources.sources import Source

if TYPE_CHECKING:
    from ncu_parsers.ncu_rep.instructions.counts_by_address import SourceFiles


def read_instructions(
    source: Source, files: dict[str, str] | None = None, wanted: Container[str] | None = None
) -> pa.Table | None:
    """The table of instructions of a report; None if it has none.

    With `wanted`, other columns of counts may be null, which saves time. `files` receives the source text in source
    pages; for binary reports see `source_files`. Raises `NcuBenchError` if the report cannot be read.
    """
    if is_binary(source):  # each reader is slow to import
        from ncu_parsers.ncu_rep.instructions.counts_by_address import read_binary_instructions

        return read_binary_instructions(source)
    from ncu_parsers.ncu.instructions.source_pages import read_source_pages

    return read_source_pages(source, files, wanted)


def source_files(source: Source) -> SourceFiles | None:
    """The source files in a binary report; None for other reports. Raises as `read_instructions`."""
    if not is_binary(source):
        return None
    from ncu_parsers.ncu_rep.instructions.counts_by_address import files_in

    return files_in(source)


def is_binary(source: Source) -> bool:
    """True for a binary report of ncu, compressed or not."""
    return source.head(len(MAGIC)) == MAGIC
