"""Tokens needed to answer thirty questions on ten real reports: with digests, and with ncu's details page.

    python -m benchmarks.digest_questions ../shared/reports

prints a Markdown table. A question is answered if the digest of the report, or one of two follow-up calls, contains the
answer; the tokens of everything read until then are counted. The details page is the output of `ncu --import REPORT
--page details` if the installed ncu can open the report; a report that is itself an exported details page counts as it
is. For a report that is too new for the installed ncu there is no page, and NVIDIA's package supplies the known
answers. Tokens are characters / 4 on both sides. The exit code is 1 if a question is not answered, or its known answer
is not on the page.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib
from ncu_launch.profilers.subprocesses import OWN_PYTHON

from ncu_tools.report.digest.statements import tokens_in

QUESTIONS = Path(__file__).with_suffix(".toml")
NCU_BENCH = (*OWN_PYTHON, "-c", "from ncu_tools.cli import program; program()")
CANNOT_OPEN = "==ERROR=="
STALLS = "smsp__pcsamp_warps_issue_stalled_"


@dataclass(frozen=True)
class DetailsPage:
    """The text that answers are checked against, its tokens (None if it is not a page for readers), and its origin."""

    text: str
    tokens: int | None
    by: str


@dataclass(frozen=True)
class Answered:
    """A question: whether the answer was found, after how many calls, and the tokens read on both sides."""

    asks: str
    found: bool
    known: bool
    calls: int
    tokens: int


@dataclass(frozen=True)
class ReportAnswers:
    """The answered questions on one report, and its details page."""

    report: str
    questions: list[Answered]
    page: DetailsPage


def output(*words: str) -> str:
    """Standard output of an ncu-bench command."""
    result = subprocess.run([*NCU_BENCH, *words], capture_output=True, check=True)  # noqa: S603
    return result.stdout.decode("utf-8")


def details_page(report: Path) -> DetailsPage:
    """Text of a report's details page; if the installed ncu is too old for it, the values from NVIDIA's package."""
    if report.suffix == ".csv":
        text = report.read_text("utf-8-sig")
        return DetailsPage(text, tokens_in(text), "its CSV")
    command = ["ncu", "--import", str(report), "--page", "details"]
    text = subprocess.run(command, capture_output=True, check=False).stdout.decode("utf-8", "replace")  # noqa: S603
    if CANNOT_OPEN in text:
        return DetailsPage(known_to_package(report), None, "NVIDIA's package")
    return DetailsPage(text, tokens_in(text), "ncu")


def known_to_package(report: Path) -> str:
    """Metrics with values, rule messages, and the most sampled places, from NVIDIA's package."""
    import ncu_report

    context = ncu_report.load_report(str(report))
    lines = []
    for range_ in map(context.range_by_idx, range(context.num_ranges())):
        for action in map(range_.action_by_idx, range(range_.num_actions())):
            lines.append(action.name())
            lines += [f"{name} {action.metric_by_name(name).value()}" for name in action.metric_names()]
            lines += [str(one.rule_message()) for one in action.rule_results() if one.has_rule_message()]
            lines += _most_sampled(action)
    return "\n".join(lines)


def _most_sampled(action: Any) -> list[str]:
    """Offset of the instruction with the most samples, and its source line if known."""
    samples: Counter[int] = Counter()
    for name in action.metric_names():
        if name.startswith(STALLS) and not name.endswith("_not_issued"):
            metric = action.metric_by_name(name)
            places = metric.correlation_ids()
            for place in range(metric.num_instances()):
                samples[places.as_uint64(place)] += metric.as_uint64(place)
    if not samples:
        return []
    hottest = samples.most_common(1)[0][0]
    line = action.source_info(hottest)
    named = [] if line is None else [f"hottest line {Path(line.file_name()).name}:{line.line()}"]
    return [f"hottest offset 0x{hottest - min(samples):04x}", *named]


def answers(root: Path, report: dict[str, Any]) -> ReportAnswers:
    """Ask all questions on one report."""
    path = root / report["path"]
    base = [] if "against" not in report else ["--against", str(root / report["against"])]
    page = details_page(path)
    digest = output("report", "--format", "digest", str(path), *base)
    questions = [_answer(path, digest, question, page.text) for question in report["question"]]
    return ReportAnswers(path.name, questions, page)


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
    """Output of a follow-up call, for the named kernel or else for the first one."""
    rows = json.loads(output("hotspots", str(path), "--format", "json"))["rows"]
    identity = next(row["kernel_id"] for row in rows if name is None or name in row["kernel"])
    if call == "kernel":
        return output("report", "--format", "digest", str(path), "--id", identity)
    return output("source", str(path), "--id", identity, "--top", "5")


def table(found: Sequence[ReportAnswers]) -> str:
    """The results as a Markdown table: a row per report, and a total."""
    lines = [
        "| report | answered | calls | tokens read, at most | details page, tokens | answers known from |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        good = sum(question.found and question.known for question in one.questions)
        most = max(question.tokens for question in one.questions)
        calls = max(question.calls for question in one.questions)
        name, page = one.report.split("__", 1)[-1], one.page
        tokens = "not opened" if page.tokens is None else f"{page.tokens:,}"
        lines.append(f"| {name} | {good} of {len(one.questions)} | {calls} | {most:,} | {tokens} | {page.by} |")
    every = [question for one in found for question in one.questions]
    good = sum(question.found and question.known for question in every)
    lines.append(f"| **all** | {good} of {len(every)} | | {_mean([one.tokens for one in every]):,.0f} on average | | |")
    both = [(question.tokens, one.page.tokens) for one in found if one.page.tokens for question in one.questions]
    ours, theirs = _mean([mine for mine, _ in both]), _mean([page for _, page in both])
    lines.append(f"| **those with a page** | {len(both)} | | {ours:,.0f} on average | {theirs:,.0f} on average | |")
    return "\n".join(lines)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def main(arguments: Sequence[str]) -> int:
    """Print the table; returns 1 if a question has no answer."""
    root = Path(arguments[0])
    found = [answers(root, report) for report in tomllib.loads(QUESTIONS.read_text("utf-8"))["report"]]
    print(table(found))
    wrong = []
    for one in found:
        for question in one.questions:
            if not (question.found and question.known):
                why = "its answer is not on the page" if question.found else "not answered"
                wrong.append(f"{one.report}: {question.asks} {why}")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
