"""Arguments of views of compiled code: whether they are binaries, and the requested kernels in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError
from ncu_parsers.sources.sources import Source

from ncu_tools.binaries.code_names import is_code_called, readable_code_name
from ncu_tools.cli.options import progress

if TYPE_CHECKING:
    from ncu_parsers.binaries.code_files import CodeReading, FoundKernel

MOST_NAMED = 3


architecture_option = click.option(
    "--arch", "architecture", metavar="SM", help="Only code for this architecture, as sm_90.  [default: all]"
)


@dataclass
class Wanted:
    """The kernels of a path with the requested name and architecture, read one after the other.

    `others` has some names that did not match; `count`, `architectures` and `names` (hashes) describe the kernels read
    so far. Iterating raises `NcuBenchError` if no kernel matches.
    """

    path: str
    name: str | None
    architecture: str | None
    reading: CodeReading
    others: set[str] = field(default_factory=set)
    count: int = 0
    architectures: set[str] = field(default_factory=set)
    names: set[int] = field(default_factory=set)

    def __iter__(self) -> Iterator[FoundKernel]:
        """The matching kernels, in the order of the files."""
        from ncu_parsers.binaries.code_files import kernels_in

        from ncu_tools.runs.selection import pattern_of

        pattern = pattern_of(self.name) if self.name is not None else None
        with progress("Reading") as reading:
            for one in kernels_in(Path(self.path), self.reading, lambda file: reading(Source(file))):
                kernel = one.resources
                if _is_wanted(kernel.name, pattern) and self.architecture in (None, kernel.architecture):
                    self.count += 1
                    self.architectures.add(kernel.architecture)
                    self.names.add(hash(kernel.name))
                    yield one
                elif len(self.others) < MOST_NAMED:
                    where = kernel.architecture or "no architecture"
                    self.others.add(f"{readable_code_name(kernel.name)} ({where})")
        if not self.count and not (self.reading.ptx and self.name is None):
            raise NcuBenchError(
                f"{self.path} holds no kernel that was asked for.",
                f"It holds, among others: {', '.join(sorted(self.others))}."
                if self.others
                else "It holds no code for a GPU.",
                "Name a kernel by a part of its name, and an architecture as --arch sm_90." if self.others else "",
            )


def _is_wanted(name: str, pattern: re.Pattern[str] | None) -> bool:
    return pattern is None or is_code_called(name, pattern)


def notes_on(reading: CodeReading) -> list[str]:
    """Notes on files and kernels that were not read, with the reason."""
    from ncu_tools.numbers.number_format import counted

    notes = [f"not read: {one}" for one in reading.damaged[:MOST_NAMED]]
    if len(reading.damaged) > MOST_NAMED:
        notes.append(f"{len(reading.damaged) - MOST_NAMED:,} more files or images are damaged")
    if reading.skipped_images:
        images = counted(reading.skipped_images, "image", "images")
        notes.append(f"{images} of a kind that is neither a cubin nor PTX")
    return notes
