"""The digest of a run: identity, sums, kernels by time with bound, levers and rules, and missing data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.files.manifest import Manifest
from ncu_parsers.schema import arrays, tables

from ncu_tools.advice.advice_on_rows import advice_on_rows
from ncu_tools.advice.advise import Advice, KernelAdvice
from ncu_tools.advice.lever_sentences import first_of_run, rows_of_levers, sentence_on
from ncu_tools.advice.next_metrics import in_a_sentence, next_metrics
from ncu_tools.advice.nvidia_levers import AnsweredRule, answered_rules
from ncu_tools.ceilings.ceilings import ceilings_of, unit_title
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.compare.run_conditions import conditions_of_run
from ncu_tools.kernels.diagnosis.diagnose import Diagnosis, KernelCause, diagnoses
from ncu_tools.kernels.grouping import launches_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import Hotspot, run_total
from ncu_tools.kernels.matching.launch_signatures import COPIES, is_one_of
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.source.inside_of_run import has_instructions
from ncu_tools.kernels.view.kernel_view import RuleResult, has_counters, rule_results
from ncu_tools.kernels.view.nvidia_rules import INFORMATION, first_sentence
from ncu_tools.numbers.number_format import FORMATS, counted, duration, more_kernels, percent, scaled
from ncu_tools.report.digest.statements import Digest, Statement, fitted, quoted_names
from ncu_tools.report.first_sentences import bound_in_words
from ncu_tools.report.step_advice_table import lever_rows, saving
from ncu_tools.report.table import printable
from ncu_tools.runs.run import Run
from ncu_tools.timeline.graph.evidence import BOUNDS_ONLY
from ncu_tools.timeline.headline import first_sentence as first_of_timeline
from ncu_tools.timeline.headline import headline, longest_waits, range_words
from ncu_tools.timeline.levers.step_advice import advice_on_timeline
from ncu_tools.timeline.timeline import Timeline

KERNELS_TOLD, STEP_LEVERS_TOLD = 20, 3
VIEWED = 5
"""Kernels whose levers, causes and rules are included: those with the most time."""
CAUSES_TOLD, RULES_TOLD = 3, 3
STEP_LEVER_VALUES = (
    "step", "lever", "saves_share", "saves_low", "saves_high", "saves_ns", "saves_low_ns", "saves_high_ns", "step_ns",
)  # fmt: skip
NOT_REPEATED = ("source", "GPU", "end", *(f"version of {name}" for name in ("torchvision", "transformers", "timm")))
"""Conditions that appear elsewhere in the sentence, or rarely matter; all are in the values of the statement."""
GPUS_TOLD, WAITS_TOLD = 2, 3
"""Most GPUs of a recording in the digest; most long waits for the host per GPU, and most waiting calls."""


def run_digest(
    run: Run,
    budget: int,
    *,
    machine: Machine | None = None,
    manifest: Manifest | None = None,
    timeline: Timeline | None = None,
    instructions: pa.Table | None = None,
) -> Digest:
    """The most important facts on a run, in at most `budget` tokens.

    Ceilings that the report lacks come from `machine`; `manifest` belongs to the run folder, if it is one, `timeline`
    to the recording, `instructions` to its kernels.
    """
    table = run.table
    found = hotspots(table, ceilings_of(table, machine))
    shown, names = found.rows[:KERNELS_TOLD], quoted_names(row.kernel for row in found.rows)
    advice = advice_on_rows(table, shown, "name", instructions)
    statements = [
        *_identity(table, manifest, found.time_title),
        *(() if timeline is None else _timeline(timeline)),
        *_first_lever(advice),
        *_totals(found.rows, has_counters(table)),
        *(one for rank, row in enumerate(shown) for one in _kernel(row, rank, names[row.kernel], table, advice)),
        *_fewer(found.rows[KERNELS_TOLD:]),
        *noted([*run.notes, *found.notes]),
        *_not_collected(found.rows, advice),
        *_next(run.name, found.rows, table, is_recording=timeline is not None),
    ]
    return fitted(f"Digest of {printable(run.name)}", statements, budget)


def _identity(table: pa.Table, manifest: Manifest | None, time_title: str) -> Iterator[Statement]:
    known = conditions_of_run(table, manifest)
    rest = ", ".join(f"{name} {value}" for name, value in known.items() if name not in NOT_REPEATED)
    copied = is_one_of(table, "operation", COPIES)
    kernels = len(set(tables.words(table.filter(~copied), "kernel_name")))
    ended = ~(tables.floats(table, "failed") > 0)  # failed launches are in no number, as in the head of tables
    launches, copies = (int(tables.launch_counts(table)[which & ended].sum()) for which in (~copied, copied))
    called = (
        f"{counted(launches, 'launch', 'launches')} of {counted(kernels, 'kernel', 'kernels')}"
        + (f" and {counted(copies, 'copy or fill', 'copies and fills')} of memory" if copies else "")
        if time_title == "time"
        else f"{counted(launches, 'call', 'calls')} of {counted(kernels, 'operator', 'operators')}"
    )
    unknown = [name for name in ("clock control", "cache control") if name not in known]
    text = (
        f"{called} on {printable(known.get('GPU', 'a device that the report does not name'))}, "
        f"from {known.get('source', '?')}"
        + (f"; {printable(rest)}" if rest else "")
        + (f"; not known: {', '.join(unknown)}" if unknown else "")
        + (f"; times are {time_title}" if time_title != "time" else "")
    )
    yield Statement("run", text, 100.0, values={"launches": launches, "kernels": kernels, "copies": copies, **known})


def _timeline(found: Timeline) -> Iterator[Statement]:
    """Statements on a recording: levers on its step, what bounds each GPU's step, and the longest waits."""
    advice = advice_on_timeline(found)
    levers = lever_rows(advice)[:STEP_LEVERS_TOLD] if advice is not None else []
    longest = first_of_timeline(found)
    if advice is not None and levers:
        doubt = f"; {BOUNDS_ONLY}" if advice.evidence.level == BOUNDS_ONLY else ""
        first = f"{levers[0]['title']} {saving(levers[0])}, of a {advice.step} of {duration(advice.step_ns)}{doubt}"
        yield Statement("run", f"what could save most: {printable(first)}", 99.0, values={"first": first})
    if longest is not None:
        yield Statement("run", f"what takes most: {printable(longest)}", 98.5, values={"longest": longest})
    for place, lever in enumerate(levers):
        doubt = f"; {lever['confidence']}" if lever["confidence"] else ""
        told = f"{lever['title']}: {saving(lever)}{doubt} ({'; '.join(lever['evidence'])}). {lever['remedy']}"
        values = {name: lever[name] for name in STEP_LEVER_VALUES}
        yield Statement("run", f"lever: {printable(told)}", 96.5 - 0.5 * place, values=values, kind="levers")
    for place, one in enumerate(map(headline, found.gpus[:GPUS_TOLD])):
        verdict, weight = one.step.verdict, 98.0 - place
        values = {
            "gpu": one.gpu.device, "process": one.gpu.process, "step": one.step.name, "steps": len(one.gpu.steps),
            "bound": verdict.bound, "span_ns": one.step.span_ns, "busy_ns": one.step.busy_ns,
            "saving_ns": verdict.saving_ns, "evidence": list(one.evidence),
        }  # fmt: skip
        yield Statement("run", f"{one.heading}: {printable(one.text)}", weight, values=values)
        for evidence in one.evidence:
            yield Statement("run", f"{one.gpu.title}: {printable(evidence)}", 93.0 - place)
        waits = longest_waits(one, WAITS_TOLD)
        if waits:
            text = f"{one.gpu.title} waited longest for the host: {printable('; '.join(waits))}"
            yield Statement("run", text, weight - 0.5, values={"waits": waits})
    yield from (Statement("run", printable(doubt), 97.5) for doubt in found.doubts)
    calls = [wait for wait in found.waits if wait.behind_ns is not None][:WAITS_TOLD]
    if calls:
        shown = "; ".join(
            f"{one.call}{f' in {range_words(one.host_range)}' if one.host_range else ''}, "
            f"{counted(one.count, 'call', 'calls')}, {duration(one.time_ns)}"
            for one in calls
        )
        yield Statement("run", f"the host waited longest for GPUs in: {printable(shown)}", 94.0)


def _totals(rows: Sequence[Hotspot], counted_by_ncu: bool) -> Iterator[Statement]:
    total = run_total(list(rows))
    of_dram = "DRAM bytes" if counted_by_ncu else "bytes of operators (not counted by hardware)"
    amounts = {
        "time_total_ns": ("time", total.time_total_ns, duration),
        "flops": ("FLOPs", total.flops, FORMATS["flop"]),
        "flops_per_s": ("FLOP/s", total.flops_per_s, FORMATS["flop/s"]),
        "dram_bytes": (of_dram, total.dram_bytes, FORMATS["byte"]),
        "least_bytes": ("least bytes by shapes (an estimate)", total.least_bytes, FORMATS["byte"]),
    }
    at_least = ("flops", "flops_per_s") if total.flops_lower_bound else ()
    shown = [
        f"{title} {'≥ ' if name in at_least else ''}{write(value)}"
        for name, (title, value, write) in amounts.items()
        if value is not None
    ]
    lacks = [title for name, (title, value, _) in amounts.items() if value is None and name in ("flops", "dram_bytes")]
    text = f"sums over all launches: {', '.join(shown) or 'none is known'}"
    if lacks:
        text += f"; not known of every kernel: {', '.join(lacks)}"
    yield Statement("run", text, 95.0, values={name: value for name, (_, value, _) in amounts.items()})


def _first_lever(advice: Mapping[str, KernelAdvice]) -> Iterator[Statement]:
    """The lever that saves most of the run's time."""
    first = first_of_run(advice.values())
    if first is not None:
        yield Statement("run", f"what could save most: {printable(first)}", 99.0, values={"first": first})


def _kernel(
    row: Hotspot, rank: int, name: str, table: pa.Table, advice: Mapping[str, KernelAdvice]
) -> Iterator[Statement]:
    """Statements on a kernel; `rank` 0 has the most time, and the first ones include levers, causes and rules."""
    key, share = kernel_id(row.kernel), row.time_share or 0.0
    weight = 90.0 - 20.0 * min(rank, 3) / 3 if rank < 4 else 40.0 * share
    ours = advice.get(row.key)
    text = _sentence(row, f"{name} ({key})", ours)
    yield Statement("kernels", text, weight, key=key, kernel_id=key, values=_values(row, ours))
    if rank >= VIEWED or not has_counters(table):
        return
    yield from lever_statements(ours, key, weight - 1.5)
    mine = arrays.kept(table, launches_of(row, table))
    yield from cause_statements(diagnoses(mine, [row], "name").get(row.key), key, weight - 3.0)
    answered = answered_rules(mine, Advice([ours], ours.kernel.total_ns)) if ours else []
    yield from rule_statements(rule_results(mine), answered, key, weight - 5.0)


def lever_statements(
    advice: KernelAdvice | None, about: str, importance: float, section: str = "kernels"
) -> Iterator[Statement]:
    """The sentence on the levers of a kernel; its values have each lever with its interval and evidence."""
    if advice is not None:
        values = {"levers": rows_of_levers(advice)}
        text = sentence_on(advice)
        yield Statement(section, text, importance, about=about, kernel_id=about, kind="levers", values=values)


def _sentence(row: Hotspot, called: str, ours: KernelAdvice | None) -> str:
    share = "" if row.time_share is None else f"{percent(row.time_share)} of the time, "
    if not row.launches:
        return f"{called}: all of its launches failed"
    time = "time not known" if row.time_total_ns is None else duration(row.time_total_ns)
    parts = [f"{called}: {share}{time} in {counted(row.launches, 'launch', 'launches')}"]
    is_least = row.flops_lower_bound and row.bound != unit_title("dram")
    at_least, at_most = ("at least ", "at most ") if is_least else ("", "")
    if row.bound and row.bound_fraction is not None:
        of_shapes = row.dram_bytes_per_s is None and row.least_bytes_per_s is not None
        by_shapes = " (by shapes, an estimate)" if of_shapes else ""
        parts.append(
            f"nearest bound {row.bound}, of which it reaches {at_least}{percent(row.bound_fraction)}{by_shapes}"
        )
    elif ours is not None and ours.busiest:
        parts.append(f"roof not known, busiest is {ours.busiest} at {percent(ours.kernel.bound[1])}")
    else:
        parts.append(bound_in_words(row) or "bound not known")
    if row.headroom_ns is not None:
        of_time = "" if row.headroom_share is None else f" ({percent(row.headroom_share)} of the time)"
        parts.append(f"reaching it would save {at_most}{duration(row.headroom_ns)}{of_time}")
    if row.flag:
        parts.append(f"flag: {row.flag}")
    return "; ".join(parts)


def _values(row: Hotspot, ours: KernelAdvice | None) -> dict[str, Any]:
    names = (
        "kernel", "launches", "time_total_ns", "time_share", "flops", "flops_per_s", "flops_basis", "dram_bytes",
        "dram_bytes_per_s", "least_bytes", "arithmetic_intensity", "bound", "bound_fraction", "headroom_ns",
        "headroom_share", "flag",
    )  # fmt: skip
    found = {name: getattr(row, name) for name in names}
    return {**found, "levers": [one.lever for one in ours.that_keep_it] if ours else None}


def cause_statements(
    diagnosis: Diagnosis | None, about: str, importance: float, section: str = "kernels"
) -> Iterator[Statement]:
    """The causes of the diagnosis with their numbers, without their cost: the levers have the savings."""
    causes = diagnosis.causes[:CAUSES_TOLD] if diagnosis else ()
    for place, cause in enumerate(causes):
        yield cause_statement(cause, about, importance - 6.0 * place, section)
    if diagnosis and not causes and diagnosis.unexplained:
        text = f"seen: {diagnosis.unexplained}"
        yield Statement(section, text, importance, about=about, kernel_id=about, kind="cause")


def cause_statement(cause: KernelCause, about: str, importance: float, section: str = "kernels") -> Statement:
    """A cause with its largest cost, and its evidence, each number with its first metric; values have all."""
    evidence = ", ".join(
        f"{re.split(r'[:(,]', one.title)[0].strip()} {_number(one.value, one.unit)} [{one.metrics[0]}]"
        if one.metrics
        else f"{one.title} {_number(one.value, one.unit)}"
        for one in cause.evidence
    )
    return Statement(
        section, f"seen: {cause.says}; evidence: {evidence}", importance, about=about, kernel_id=about, kind="cause",
        values={
            "rule": cause.rule, "cost": cause.cost,
            "evidence": [
                {"quantity": one.quantity, "value": one.value, "unit": one.unit, "metrics": list(one.metrics)}
                for one in cause.evidence
            ],
        },
    )  # fmt: skip


def _number(value: float, unit: str) -> str:
    if unit in ("fraction", "percent", "%"):
        return percent(value if unit == "fraction" else value / 100)
    if unit == "ns":
        return FORMATS["time"](value)
    return scaled(value, "") if unit in ("", "number") else f"{scaled(value, '')} {unit}"


def rule_statements(
    rules: Sequence[RuleResult],
    answered: Sequence[AnsweredRule],
    about: str,
    importance: float,
    section: str = "kernels",
) -> Iterator[Statement]:
    """Suggestions of NVIDIA's rules, the largest estimated speed-up first, with our answer to `answered` ones."""
    ours = {one.rule.rule: one for one in answered}
    asking = [rule for rule in rules if rule.speedup or rule.kind not in INFORMATION]
    for place, rule in enumerate(asking[:RULES_TOLD]):
        kind = "est. speed-up" if rule.speedup_type != "local" else "est. local speed-up"
        estimate = f"{kind} {rule.speedup:.3g} %" if rule.speedup else "no estimate"
        answer = ours.get(rule.name)
        text = f"NVIDIA's {rule.name or 'rule'} ({estimate}): {printable(first_sentence(rule.text))}"
        text += f"; {printable(answer.in_words)}" if answer else ""
        values = {"rule": rule.name or None, "estimated_speedup_percent": rule.speedup,
                  "speedup_type": rule.speedup_type, "ours": answer.outcome if answer else None}  # fmt: skip
        yield Statement(
            section, text, importance - 6.0 * place, about=about, kernel_id=about, kind="rule", values=values
        )


def _fewer(rest: Sequence[Hotspot]) -> Iterator[Statement]:
    if rest:
        shares = [row.time_share for row in rest]
        known = [share for share in shares if share is not None]
        values = {"kernels": len(rest), "time_share": sum(known) if known else None}
        yield Statement("kernels", more_kernels(shares), 60.0, kind="kernels", values=values)


def noted(notes: Sequence[str]) -> Iterator[Statement]:
    """Notes on reading a run, in their order; the first ones are the most important."""
    for place, note in enumerate(dict.fromkeys(notes)):
        yield Statement("notes", printable(note), 66.0 - place)


def _not_collected(rows: Sequence[Hotspot], advice: Mapping[str, KernelAdvice]) -> Iterator[Statement]:
    found = [advice[row.key] for row in rows[:VIEWED] if row.key in advice]
    lacking = next_metrics(Advice(found, sum(one.kernel.total_ns for one in found)))
    for text in in_a_sentence(lacking):
        yield Statement("missing", text, 84.0, values={"groups": [one.group for one in lacking]})


def _next(name: str, rows: Sequence[Hotspot], table: pa.Table, *, is_recording: bool) -> Iterator[Statement]:
    """Commands that look further, each with the question that it answers."""
    run = shlex.quote(name)
    if not rows:
        return
    hottest = kernel_id(rows[0].kernel)
    commands = []
    if has_counters(table):
        commands.append((f"ncu-bench advise {run}", "what to change in each kernel, and what it saves"))
        commands.append((f"ncu-bench kernel {run} --id {hottest}", "all that is known of the kernel of the most time"))
        if Path(name).exists() and has_instructions(name, table.column_names):
            commands.append((f"ncu-bench source {run} --id {hottest} --top 5", "its hottest lines or instructions"))
    if is_recording:
        commands.append((f"ncu-bench advise {run}", "what to change in a step, and what it saves"))
    if not np.isnan(tables.floats(table, "start_ns")).all():
        commands.append((f"ncu-bench timeline {run}", "where the time goes: kernels, copies, gaps by cause"))
    commands.append((f"ncu-bench hotspots {run} --format json", "every kernel with every number"))
    for place, (command, answers) in enumerate(commands):
        yield Statement("next", f"`{command}`: {answers}", 86.0 - 3 * place, values={"command": command})
