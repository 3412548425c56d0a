"""How many tokens it takes to answer thirty questions on ten real reports: by digests, and by the details page.

    python -m benchmarks.digest_questions ../shared/reports

prints a table in Markdown. A question is answered if its answer is in the digest of the report or in one of two calls
behind it; all that was read until then counts. The details page is the text of `ncu --import REPORT --page details`
where the installed ncu can open the report; a details page that was exported as CSV counts as it is, and of reports
that are too new for the installed ncu the page is what `ncu-bench export --as sections` writes of it. Tokens are
characters / 4 on both sides. The exit code is 1 if a question is not answered, or its known answer is not on the page.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomllib
from ncu_launch.profilers.subprocesses import OWN_PYTHON

from ncu_tools.report.digest.statements import tokens_in

QUESTIONS = Path(__file__).with_suffix(".toml")
NCU_BENCH = (*OWN_PYTHON, "-c", "from ncu_tools.cli import program; program()")
TOO_OLD = "==ERROR=="


@dataclass(frozen=True)
class Answered:
    """One question: whether its answer was found, by how many calls, and the tokens read for it on both sides."""

    asks: str
    found: bool
    known: bool
    calls: int
    tokens: int


@dataclass(frozen=True)
class ReportAnswers:
    """The questions on one report, and the tokens of its details page, made by `page_by`."""

    report: str
    questions: list[Answered]
    page_tokens: int
    page_by: str


def output(*words: str) -> str:
    """What ncu-bench writes to standard output."""
    result = subprocess.run([*NCU_BENCH, *words], capture_output=True, check=True)
    return result.stdout.decode("utf-8")


def details_page(report: Path) -> tuple[str, str]:
    """The text of a report's details page, and what made it."""
    if report.suffix == ".csv":
        return report.read_text("utf-8-sig"), "its CSV"
    page = subprocess.run(
        ["ncu", "--import", str(report), "--page", "details"], capture_output=True, check=False
    ).stdout.decode("utf-8", "replace")
    if TOO_OLD not in page:
        return page, "ncu"
    with TemporaryDirectory() as folder:
        exported = Path(folder, "details.csv")
        output("export", str(report), "--as", "sections", "-o", str(exported))
        return exported.read_text("utf-8"), "export"


def answers(root: Path, report: dict[str, Any]) -> ReportAnswers:
    """Ask the questions on one report."""
    path = root / report["path"]
    base = [] if "against" not in report else ["--against", str(root / report["against"])]
    page, page_by = details_page(path)
    digest = output("digest", str(path), *base)
    questions = [_answer(path, digest, question, page) for question in report["question"]]
    return ReportAnswers(path.name, questions, tokens_in(page), page_by)


def _answer(path: Path, digest: str, question: dict[str, Any], page: str) -> Answered:
    read, calls = [digest], 0
    for call in question.get("calls", []):
        if re.search(question["answer"], "".join(read)):
            break
        read.append(_called(call, path, question.get("name")))
        calls += 1
    text = "".join(read)
    found, known = re.search(question["answer"], text), re.search(question["reference"], page)
    return Answered(question["asks"], found is not None, known is not None, calls, tokens_in(text))


def _called(call: str, path: Path, name: str | None) -> str:
    """What a call behind the digest gives, of the kernel that is asked for: the first one without a name."""
    rows = json.loads(output("hotspots", str(path), "--format", "json"))["rows"]
    identity = next(row["kernel_id"] for row in rows if name is None or name in row["kernel"])
    if call == "kernel":
        return output("digest", str(path), "--id", identity)
    return output("source", str(path), "--id", identity, "--top", "5")


def table(found: Sequence[ReportAnswers]) -> str:
    """The results as Markdown, a row per report and one for all."""
    lines = [
        "| report | answered | calls behind the digest | tokens of an answer, at most | details page, tokens | by |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        good = sum(question.found and question.known for question in one.questions)
        most = max(question.tokens for question in one.questions)
        calls = max(question.calls for question in one.questions)
        name = one.report.split("__", 1)[-1]
        lines.append(
            f"| {name} | {good} of {len(one.questions)} | {calls} | {most:,} | {one.page_tokens:,} | {one.page_by} |"
        )
    every = [question for one in found for question in one.questions]
    mean = sum(question.tokens for question in every) / len(every)
    page = sum(one.page_tokens * len(one.questions) for one in found) / len(every)
    good = sum(question.found and question.known for question in every)
    lines.append(f"| **all, mean per question** | {good} of {len(every)} | | {mean:,.0f} | {page:,.0f} | |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Print the table; 1 if a question has no answer."""
    root = Path(arguments[0])
    found = [answers(root, report) for report in tomllib.loads(QUESTIONS.read_text("utf-8"))["report"]]
    print(table(found))
    wrong = [
        f"{one.report}: {question.asks}{'' if question.found else ' (no answer)'}{'' if question.known else ' (not known)'}"
        for one in found for question in one.questions if not (question.found and question.known)
    ]  # fmt: skip
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
