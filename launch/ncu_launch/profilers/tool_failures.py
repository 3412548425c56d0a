"""Known failure messages of Nsight Compute, and of Nsight Systems at its start, with advice for each.

ncu often exits with 0 although it collected nothing, and writes its messages into the file meant for the CSV. So
failures are recognised by substrings of the output, not by the exit code; `tool_failures.toml` lists them.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.toml_tables import table_beside


class Failure(NamedTuple):
    """A known failure: any of `signs` in the tool's output identifies it; `advice` says what to do."""

    slug: str
    signs: tuple[str, ...]
    meaning: str
    advice: str


@cache
def failures() -> tuple[Failure, ...]:
    """The known failures, in search order."""
    listed = table_beside(__file__, "tool_failures")["failure"]
    return tuple(Failure(**{**entry, "signs": tuple(entry["signs"])}) for entry in listed)


class ToolFailed(NcuBenchError):
    """The tool's output shows that it collected nothing."""

    def __init__(self, source: str, failure: Failure, quote: str) -> None:
        self.failure = failure
        super().__init__(f"{source} holds no profile: {failure.meaning}.", f'It says: "{quote}".', failure.advice)


def recognise(lines: list[str]) -> tuple[Failure, str] | None:
    """The first known failure in a tool's output and the line that shows it; None if there is none."""
    for failure in failures():
        for line in lines:
            if any(sign in line for sign in failure.signs):
                return failure, line.strip()
    return None
