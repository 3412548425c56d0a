"""The headline of a timeline: the verdict on the typical step of each GPU, and what could save most.

The step of median length stands for all steps, since the first one is often slow to start; without steps, the whole
recording does. The terminal, the page, the digest and JSON share these words.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.file_kinds import TIMELINES
from ncu_parsers.schema import tables
from ncu_parsers.sources.sources import is_here

from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.timeline.gaps import LongGap
from ncu_tools.timeline.load_activity import load_activity
from ncu_tools.timeline.steps import REPETITION, TimelineStep
from ncu_tools.timeline.timeline import GpuTimeline, Timeline, timeline
from ncu_tools.timeline.verdict import COMMUNICATION, COPY, HOST, KERNELS, LAUNCHES, PARTS, bound_words

_PYTHON = re.compile(r"(?:.*/)?(?P<file>[^/]+)\((?P<line>\d+)\): (?P<function>.+)")
"""A Python function as named in traces: "transformers/pipelines/base.py(1266): forward"."""

OF_TABLES = "launches"
"""The `tool` of an `Activity` that was read from a table of launches."""
MOST_LAUNCHES = 1_000_000
"""Most launches of a run with a timeline beside its kernels: reading more again would take too long."""


def timeline_of(name: str, table: pa.Table) -> Timeline | None:
    """The timeline of the recording behind a run's table of launches; None for other runs, or without recording."""
    is_recorded = bool(TIMELINES & set(tables.words(table, "source")))
    if not is_recorded or len(table) > MOST_LAUNCHES or not is_here(name):
        return None
    try:
        return timeline(load_activity(name))
    except NcuBenchError:  # the kernels are shown nevertheless
        return None


@dataclass(frozen=True)
class Headline:
    """The verdict on a GPU: `heading` such as "GPU 0 of process 7: copy-bound", `text` a sentence, and evidence."""

    gpu: GpuTimeline
    step: TimelineStep
    heading: str
    text: str
    evidence: tuple[str, ...]


def headline(gpu: GpuTimeline) -> Headline:
    """The verdict on a GPU's typical step, followed by that on the whole recording; without steps only the latter."""
    step = gpu.typical
    if step is None:
        return Headline(gpu, gpu.whole, *verdict_words(gpu, gpu.whole), gpu.whole.verdict.evidence)
    heading, text = verdict_words(gpu, step)
    text = text.replace(f"of {duration(step.span_ns)},", f"of {_which(gpu, step)},", 1)
    return Headline(
        gpu, step, heading, text, (*step.verdict.evidence, *_bounds_of_steps(gpu), *_on_the_whole(gpu.whole))
    )


def verdict_words(gpu: GpuTimeline, step: TimelineStep) -> tuple[str, str]:
    """The verdict on a step as a heading and a sentence: "GPU 0 of process 7: copy-bound", "of 3 ms, 97 % is ..."."""
    of_process = "" if gpu.process is None else f" of process {gpu.process}"
    words = bound_words(step.verdict.bound, step.causes)
    return f"{gpu.title}{of_process}: {words}", f"of {duration(step.span_ns)}, {step.verdict.why}"


def _which(gpu: GpuTimeline, step: TimelineStep) -> str:
    if len(gpu.steps) == 1:
        return f"the only {_noun(gpu)}, {duration(step.span_ns)}"
    return f"a {_noun(gpu)} of {duration(step.span_ns)}, the median of {len(gpu.steps):,}"


def _noun(gpu: GpuTimeline) -> str:
    """The noun for steps: "repetition" if they were found as repeating kernels, which may be layers; else "step"."""
    return "repetition" if gpu.steps[0].name.startswith(REPETITION) else "step"


def _bounds_of_steps(gpu: GpuTimeline) -> list[str]:
    """A sentence on what bounds each of all steps, if it differs between them; else []."""
    counts = Counter(bound_words(step.verdict.bound, {}) for step in gpu.steps)
    if len(counts) == 1:
        return []
    return [
        f"of {len(gpu.steps):,} {_noun(gpu)}s "
        + ", ".join(f"{count:,} {words}" for words, count in counts.most_common())
    ]


def _on_the_whole(whole: TimelineStep) -> tuple[str, ...]:
    """The verdict on the whole recording, with rates of copies or collectives if these bound it."""
    verdict = whole.verdict
    words = bound_words(verdict.bound, whole.causes)
    rates = verdict.evidence if verdict.bound in (COPY, COMMUNICATION) else ()
    return (f"{whole.name}, {duration(whole.span_ns)}: {words}: {verdict.why}", *rates)


def recorded_by(tool: str) -> str:
    """The origin of a recording in words, as "recorded by nsys"; a table of launches may be of any tool."""
    return "from a table of launches" if tool == OF_TABLES else f"recorded by {tool}"


def first_sentence(found: Timeline) -> str | None:
    """The largest possible saving in a sentence: "host: 268.8 ms of a 390.7 ms step wait for preprocess in ..."."""
    decided = [one for one in map(headline, found.gpus) if one.step.verdict.bound is not None]
    if not decided:
        return None
    most = max(decided, key=lambda one: (one.step.verdict.saving_ns or 0) / one.step.span_ns)
    sentence = _sentence(most)
    return sentence if len(found.gpus) == 1 else f"{most.gpu.title}: {sentence}"


def _sentence(one: Headline) -> str:
    step, time = one.step, duration(one.step.verdict.bound_ns)
    of = f"of a {duration(step.span_ns)} {_noun(one.gpu)}" if one.gpu.steps else f"of {duration(step.span_ns)}"
    if step.verdict.bound == HOST:
        return f"host: {_waited_for(one, of)}"
    return {
        KERNELS: f"GPU busy: kernels run for {time} {of}; what to change: ncu-bench advise",
        COPY: f"copies: {time} {of} that no kernel hides",
        COMMUNICATION: f"communication: {time} {of} that no kernel hides",
        LAUNCHES: f"launch: {time} {of} wait for the host to launch {counted(step.kernels, 'kernel', 'kernels')}",
    }[step.verdict.bound or ""]


def _waited_for(one: Headline, of: str) -> str:
    """The longest wait if it is most of the host's time; else the main causes of that time, and the longest wait."""
    own = {cause: time for cause, time in one.step.causes.items() if cause in PARTS[HOST]}
    longest = next((gap for gap in longest_gaps_of(one) if gap.cause in own), None)
    total = one.step.verdict.bound_ns
    if longest is not None and 2 * longest.cause_ns >= total:
        return f"{duration(longest.cause_ns)} {of} wait for {_place(one, longest) or longest.cause}"
    causes = sorted(own, key=lambda cause: -own[cause])[:2]
    split = " and ".join(f"{cause} ({duration(own[cause])})" for cause in causes)
    where = (
        "" if longest is None else f"; longest {duration(longest.cause_ns)}, {_place(one, longest) or longest.cause}"
    )
    return f"{duration(total)} {of} wait for {split}{where}"


def longest_gaps_of(one: Headline) -> list[LongGap]:
    """The longest gaps of the step, or recording, that the headline describes; the longest first."""
    return one.gpu.longest_of_typical if one.gpu.steps else one.gpu.longest


def _place(one: Headline, gap: LongGap) -> str:
    """The host range of a gap, in words; "" if it is unknown or the step itself."""
    return "" if gap.host_range in (None, one.step.name) else range_words(gap.host_range or "")


def range_words(name: str) -> str:
    """A host range in words; for a Python function "preprocess in image_processing_videomae.py:235"."""
    found = _PYTHON.fullmatch(name)
    return f"{found['function']} in {found['file']}:{found['line']}" if found else name


def longest_waits(one: Headline, most: int) -> list[str]:
    """The longest waits of a GPU for the host, each with the place on the host; equal places only once.

    Waits whose share of the step rounds to 0.0 % are left out.
    """
    of_host = (*PARTS[HOST], *PARTS[LAUNCHES])
    found: dict[str, str] = {}
    for gap in longest_gaps_of(one):
        if gap.cause in of_host:
            place = _place(one, gap)
            where = f"{gap.cause}{f': {place}' if place else ''}{f', after {gap.after_wait}' if gap.after_wait else ''}"
            share = percent(gap.cause_ns / one.step.span_ns)
            if share != percent(0):
                found.setdefault(where, f"{duration(gap.cause_ns)} ({share}) of {where}")
    return list(found.values())[:most]
