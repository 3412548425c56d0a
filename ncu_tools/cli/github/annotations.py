"""Annotations of a job: workflow commands such as `::error file=a.cu,line=12::...`, and links to source lines.

GitHub reads the commands from both streams of a step. Names in reports are data: a line break or `::` in one could
begin a command of its own, so everything is escaped as GitHub's toolkit does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from ncu_tools.compare.gate import NOT_EVALUATED, REFUSED, TRIPPED, GateOutcome
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.source.kernel_lines import SourceLine, kernel_lines

LEVELS = {TRIPPED: "error", REFUSED: "warning", NOT_EVALUATED: "warning"}
MOST_ANNOTATED = 10
"""Most errors, and most warnings, that GitHub shows per step."""


@dataclass(frozen=True)
class PlacedOutcome:
    """The outcome of a gate, with the source line of each of its kernels that is in the checkout."""

    outcome: GateOutcome
    lines: Mapping[str, SourceLine]


def placed(run: str, outcomes: Sequence[GateOutcome], checkout: Path) -> list[PlacedOutcome]:
    """The outcomes of a run, with the source lines of the kernels that they name, relative to the checkout."""
    names = {name for one in outcomes if one.outcome in LEVELS for name in one.subjects}
    every = {
        name: SourceLine(file, line)
        for name, (path, line) in kernel_lines(run, names).items()
        if (file := in_checkout(path, checkout)) is not None
    }
    return [PlacedOutcome(one, {name: every[name] for name in one.subjects if name in every}) for one in outcomes]


def in_checkout(path: str, checkout: Path) -> str | None:
    """A file of a report by its name in the checkout: its path there, else its longest ending that exists there."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if ".." in parts:
        return None
    for start in range(len(parts)):
        ending = PurePosixPath(*parts[start:])
        if not ending.is_absolute() and (checkout / ending).is_file():
            return str(ending)
    return None


def commands(outcomes: Sequence[PlacedOutcome]) -> Iterator[str]:
    """A workflow command for each gate that did not pass, and for each of its kernels with a known line."""
    for one in outcomes:
        level = LEVELS.get(one.outcome.outcome)
        if level is None:
            continue
        title = f"ncu-bench: {one.outcome.gate.text}"
        message = f"{one.outcome.outcome}: {one.outcome.reason}"
        for name, (file, line) in list(one.lines.items())[:MOST_ANNOTATED]:
            told = f"{readable_name(name)} is slower or larger here: {message}" if level == "error" else message
            yield _command(level, told, file=file, line=str(line), title=title)
        if not one.lines:
            yield _command(level, message, title=title)


def warning(message: str) -> str:
    """The workflow command that shows a warning on the job's page."""
    return _command("warning", message, title="ncu-bench")


def _command(level: str, message: str, **properties: str) -> str:
    """A workflow command, escaped as by `@actions/core` (command.ts)."""
    told = ",".join(f"{name}={_escaped(value, more=True)}" for name, value in properties.items())
    return f"::{level} {told}::{_escaped(message)}"


def _escaped(text: str, *, more: bool = False) -> str:
    for letter in "%\r\n" + (":," if more else ""):
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def source_link(place: SourceLine) -> str | None:
    """The address of a line on GitHub, at the commit of the job; None outside of a job."""
    repository, commit = (os.environ.get(name) for name in ("GITHUB_REPOSITORY", "GITHUB_SHA"))
    if not repository or not commit:
        return None
    return f"{_server()}/{repository}/blob/{commit}/{quote(place.file)}#L{place.line}"


def run_link() -> str | None:
    """The address of the job's run, where its artefacts are; None outside of a job."""
    repository, run = (os.environ.get(name) for name in ("GITHUB_REPOSITORY", "GITHUB_RUN_ID"))
    return f"{_server()}/{repository}/actions/runs/{run}" if repository and run else None


def _server() -> str:
    return os.environ.get("GITHUB_SERVER_URL", "https://github.com").rstrip("/")
