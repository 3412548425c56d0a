"""What the nightly parts tried, as tables: a row for each case in docs/dev/reliability.md, for each part in docs/reliability.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT
from tests.nightly.account import Tried, load
from tests.nightly.parts import Case, parts

BY_CASE, BY_PART = ROOT / "docs" / "dev" / "reliability.md", ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- tried: written by python -m tests.update_expectations -->", "<!-- end of tried -->"
HEAD = """# What was tried, case by case

<!-- written by python -m tests.update_expectations -->

Each row is a case of a nightly part (`.ci/run nightly` lists them) on the last commit of the code that it met: inputs,
how many of them were read and compared where that is asked, findings on that commit, the day. The code of mutated and
compared files is what the modules that read them load. A finding is mended with a test, and stays in its row until the case
is tried again. "Not run" is what it says: no commit met the case yet. Of parts of tests, only what ran is listed.
"""
OF_TESTS = "tests-"
"""The beginning of parts whose cases are files of tests, which come and go."""


def pages() -> list[tuple[Path, str]]:
    """Both pages, with what they have to hold."""
    account = load()
    return [(BY_CASE, by_case(account)), (BY_PART, with_parts(BY_PART.read_text("utf-8"), account))]


def by_case(account: dict[str, Tried]) -> str:
    """The page of all cases, a table for each part."""
    tables = []
    for part, cases in parts().items():
        shown = [case for case in cases if case.name in account or not part.startswith(OF_TESTS)]
        rows = "\n".join(_row(case, account.get(case.name)) for case in shown) or "| not run | | | | | | |"
        tables.append(
            f"## {part}\n\n| case | inputs | read | findings | of the case | day | code |\n|---|---|---|---|---|---|---|\n{rows}\n"
        )
    return "\n".join([HEAD, *tables])


def _row(case: Case, tried: Tried | None) -> str:
    if tried is None:
        return f"| {case.name} | not run | | | | | |"
    read = "" if tried.read is None else f"{100 * tried.read / max(tried.inputs, 1):.0f} %"
    share = f"{100 * (tried.inputs / case.inputs if case.inputs else len(tried.chunks) / case.chunks):.1f} %"
    cells = (case.name, f"{tried.inputs:,}", read, f"{tried.findings:,}", share, tried.day, tried.commit)
    return f"| {' | '.join(cells)} |"


def with_parts(page: str, account: dict[str, Tried]) -> str:
    """The page with its table of parts written anew."""
    rows = [
        _summed(part, [account[case.name] for case in cases if case.name in account], len(cases))
        for part, cases in parts().items()
    ]
    head = "| part | cases tried | inputs | findings | days |\n|---|---|---|---|---|"
    block = "\n".join([BEGIN, head, *rows, END])
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, page, flags=re.DOTALL)


def _summed(part: str, tried: list[Tried], cases: int) -> str:
    if not tried:
        return f"| {part} | none | | | not run |"
    days = sorted({one.day for one in tried})
    inputs, findings = sum(one.inputs for one in tried), sum(one.findings for one in tried)
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    known = str(len(tried)) if part.startswith(OF_TESTS) else f"{len(tried)} of {cases}"
    return f"| {part} | {known} | {inputs:,} | {findings:,} | {span} |"
