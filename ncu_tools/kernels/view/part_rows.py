"""The rows of a kernel's seven parts for people: on the terminal, in Markdown and in the HTML report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ncu_parsers.schema.tables import OF_SEVERAL_KERNELS

from ncu_tools.kernels.diagnosis.agreement import AGREED, FINER, SILENT, WITH_REASON, WITHOUT
from ncu_tools.kernels.estimated_flops import estimate_notes
from ncu_tools.kernels.hotspots import SEVERAL_AS_ONE
from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.source.source_text import COLLECT
from ncu_tools.kernels.source.stalls import stalls
from ncu_tools.kernels.view.facts import Fact, parts
from ncu_tools.kernels.view.kernel_view import KernelView, RuleResult
from ncu_tools.kernels.view.occupancy import BLOCKS, REGISTERS, OccupancyStep
from ncu_tools.numbers.number_format import FORMATS, counted, percent

PARTS = {
    "identity": "1 identity", "limits": "2 limits", "occupancy": "3 occupancy", "scheduler": "4 scheduler",
    "memory": "5 memory", "pipes": "6 pipes and mix", "verdict": "7 verdict",
}  # fmt: skip
KINDS = {"percent": "fraction", "byte": "byte", "time": "time", "hz": "hz", "count": "count", "number": "number"}
STALLS_SHOWN, RULES_SHOWN, SHORTEST_SHARE = 5, 6, 0.005
SENTENCE_END = r"\.\s+|\n|\s(?=This kernel's |See the )"
"""End of a sentence in a rule's message; some lack their full stop."""
FULL_NAME = "full name"
"""The title of the row of a kernel's full name, if the short one differs."""
LONGEST_NAME = 400
"""The most characters of a full name that people see: five lines."""
MISSING_NAMED = 4
"""Most facts of a part that the note on uncollected ones names; JSON has all."""
WHY_OUT_OF_RANGE = "counters of different passes, or a launch too short to be measured: profile a longer one"
ALL_FAILED = "all of its launches failed, so nothing is known of it: see what the program and ncu printed"
STEP_MEANS = "theoretical occupancy with the next smaller need that lets one more block fit an SM"
SAID_OF_RULES = {
    AGREED: "ours agrees", FINER: "ours is finer", SILENT: "ours is silent", WITH_REASON: "ours contradicts",
    WITHOUT: "ours contradicts without a reason",
}  # fmt: skip

Row = dict[str, Any]


def rows_of_part(view: KernelView, part: str, most_rules: int = RULES_SHOWN) -> list[Row]:
    """The rows of one of `PARTS`: "title", "value", "against" and "spread" as texts or None.

    Rows of shares have "share" too, a fraction of 1; rows of NVIDIA's rules have "message", the full text. Rows whose
    title is a term have "means", a sentence on it; those of facts have "metric", what was counted.
    """
    first = _shape_rows(view) if part == "identity" else ()
    return [*first, *map(_fact_row, view.of_part(part)), *_more_rows(view, part, most_rules)]


def name_of_view(view: KernelView) -> str:
    """The kernel's short name with its launches and the device."""
    return f"{readable_name(view.kernel_name)}: {launches_of_view(view)}"


def launches_of_view(view: KernelView) -> str:
    """The number of launches of a view, and their device."""
    device = f" on {view.device}" if view.device else ""
    averages = "averages over " if view.launched > view.launches else ""
    return f"{averages}{counted(view.launched, 'launch', 'launches')}{device}"


def verdict_of(view: KernelView) -> list[str]:
    """The verdict in one or two sentences: the first cause, or that none stands out, and the busiest resource."""
    ours = view.diagnosis
    if not view.launches:
        return [ALL_FAILED]
    if ours is None or not (ours.causes or ours.unexplained):
        return []
    if not ours.causes:
        return [ours.unexplained]
    return [ours.causes[0].says, *([ours.bound] if ours.bound else [])]


def notes_of(view: KernelView, parts: Sequence[str] = tuple(PARTS)) -> list[str]:
    """Notes on the launches of the view, and on uncollected facts of these parts with the collecting command."""
    notes = [name_of_view(view)]
    notes += _contradicted(view).values() if "identity" in parts else ()
    if len(view.times_by_shape) > 1:
        shapes = f"{len(view.times_by_shape)} shapes of grid and block"
        notes.append(f"its launches have {shapes}, so medians mix different work: --launch N shows one launch")
    differ_in, others = view.not_alike
    if others:
        of = f"{view.launches:,} of {counted(view.launches + others, 'launch', 'launches')}"
        notes.append(
            f"shown {'is' if view.launches == 1 else 'are'} {of}, with the most time: the others differ in "
            f"{differ_in}, so other numbers of blocks fit an SM; --launch N shows one"
        )
    beyond = [f"{one.title} {written(one.kind, one.value)}" for one in view.facts if one.is_out_of_range]
    if beyond:
        notes.append(f"out of range: {', '.join(beyond)}; {WHY_OUT_OF_RANGE}")
    missing = [_missing(view, part) for part, titles in view.missing.items() if titles and part in parts]
    if view.kernel_name in OF_SEVERAL_KERNELS and not view.grids:
        notes.append(f"a {view.kernel_name} is of {SEVERAL_AS_ONE}")
    elif missing and view.launches:
        notes.append(f"not collected: {'; '.join(missing)}. Most of it is collected by: {COLLECT}")
    return [*notes, *estimate_notes(view.estimates)]


def written(kind: str, value: float) -> str:
    """A fact's value with its unit; `kind` as in parts.toml, per cents 0 to 100."""
    if kind == "percent":
        return percent(value / 100)
    return FORMATS[KINDS[kind]](round(value) if kind == "count" else value)


def _fact_row(fact: Fact) -> Row:
    least, value, most = (written(fact.kind, one) for one in (fact.low, fact.value, fact.high))
    spread = None if least == most else f"{least} to {most}"
    means = parts()[fact.part][fact.key]["means"]
    row = {"title": fact.title, "value": value, "spread": spread, "against": _against(fact), "means": means,
           "metric": fact.metric}  # fmt: skip
    return row if fact.share is None else {**row, "share": fact.share}


def _against(fact: Fact) -> str | None:
    """The reference of a fact: a count's ideal, or the largest possible value."""
    if fact.is_out_of_range:
        return "out of range"
    if fact.of is None:
        return None
    if fact.kind == "count":
        return f"ideal {written(fact.kind, fact.of)}" + (f", {fact.share:.3g} x" if fact.share is not None else "")
    return f"of {written(fact.kind, fact.of)}" + (f" ({percent(fact.share)})" if fact.share is not None else "")


def _more_rows(view: KernelView, part: str, most_rules: int) -> Iterator[Row]:
    if part == "identity":
        yield from _identity_rows(view)
    elif part == "limits":
        yield from _bound_rows(view)
    elif part == "occupancy":
        yield from _occupancy_rows(view)
    elif part == "scheduler":
        for stall in view.stalls[:STALLS_SHOWN]:
            cycles = None if stall.per_issue is None else f"{stall.per_issue:.2f} cycles per issue"
            known = stalls().get(stall.reason.replace(" ", "_"))
            means = {"means": f"time in which a warp does not issue: {known.meaning}"} if known else {}
            yield {"title": f"stalled: {stall.reason}", **_share(stall.share), "against": cycles, **means}
        for place in view.places:
            stalled = None if place.stall is None else f"of all samples; most stalled by {place.stall}"
            yield {"title": f"samples at {place.place}", **_share(place.share), "against": stalled}
    elif part == "pipes" and view.mix is not None:
        for kind, count in sorted(view.mix.by_kind.items(), key=lambda item: -item[1]):
            share = count / view.mix.total
            if share >= SHORTEST_SHARE:
                of_all = "instructions of this kind that warps executed, of all that they executed"
                yield {"title": f"instructions: {kind.replace('_', '/')}", **_share(share), "means": of_all}
    elif part == "verdict":
        yield from _verdict_rows(view, most_rules)


def _share(share: float | None) -> Row:
    return {"value": None} if share is None else {"value": percent(share), "share": share}


def _shape_rows(view: KernelView) -> Iterator[Row]:
    for title, shapes, unit in (
        ("grid", view.grids, "blocks of a launch"),
        ("block", view.blocks, "threads of a block"),
    ):
        means = f"{unit} in x, y and z"
        if len(shapes) == 1 and title not in _contradicted(view):
            yield {"title": title, "value": " x ".join(map(str, shapes[0])), "means": means}
        elif len(shapes) > 1:
            yield {"title": title, "value": counted(len(shapes), "shape", "shapes"), "means": means}


def _identity_rows(view: KernelView) -> Iterator[Row]:
    full = view.kernel_name
    if full != readable_name(full):
        cut = f" ({len(full):,} characters: --format json)" if len(full) > LONGEST_NAME else ""
        yield {"title": FULL_NAME, "value": None, "against": fitted_names([full], LONGEST_NAME)[full] + cut}
    if view.hotspot.time_share is not None:
        of = "selected launches'" if view.of_selection else "run's"
        means = "time of all launches of the kernel, of that of every kernel"
        yield {"title": f"share of the {of} time", **_share(view.hotspot.time_share), "means": means}
    for title, value in view.conditions.items():
        yield {"title": title, "value": value}


def _contradicted(view: KernelView) -> dict[str, str]:
    """Grid or block -> the note on it, if the report's metrics count other blocks or threads than the shape has."""
    counts = {fact.key: fact.value for fact in view.of_part("identity")}
    found = {}
    for title, shapes, unit in (("grid", view.grids, "blocks"), ("block", view.blocks, "threads per block")):
        if len(shapes) == 1 and counts.get(title, math.prod(shapes[0])) != math.prod(shapes[0]):
            shape = " x ".join(map(str, shapes[0]))
            found[title] = (
                f"the report contradicts itself: a {title} of {shape}, and {counts[title]:,.0f} {unit} counted"
            )
    return found


def _bound_rows(view: KernelView) -> Iterator[Row]:
    spot = view.hotspot
    if spot.bound_fraction is not None:
        saves = None
        if spot.headroom_ns:
            mean_of = "a mean of " if spot.launches > 1 else ""  # above the median, if some launches are long
            saves = f"reaching it saves {mean_of}{FORMATS['time'](spot.headroom_ns / spot.launches)}"
        means = "the roof of which the kernel reaches the largest share: a peak of bytes or FLOPs per second"
        yield {"title": f"{spot.bound}, the nearest roof, reached", **_share(spot.bound_fraction), "against": saves,
               "means": means}  # fmt: skip


def _occupancy_rows(view: KernelView) -> Iterator[Row]:
    found = view.occupancy
    if found.theoretical is None and found.calculated is not None:
        means = parts()["occupancy"]["theoretical"]["means"]
        yield {"title": "theoretical occupancy, as calculated", **_share(found.calculated.fraction), "means": means}
    for resource, blocks in found.blocks_by.items():
        limits = "the limit" if resource in found.limiters else None
        title = "blocks per SM at most" if resource == BLOCKS else f"blocks per SM by {resource}"
        means = "blocks that fit an SM if nothing else limits them; the smallest of these numbers counts"
        yield {"title": title, "value": str(blocks), "against": limits, "means": means}
    for step in found.steps:
        title = "with fewer registers" if step.resource == REGISTERS else "with less shared memory"
        yield {"title": title, **_share(step.fraction), "against": _step_words(step), "means": STEP_MEANS}
    if found.joint_steps:
        both = ", ".join(_step_words(step) for step in found.joint_steps)
        yield {"title": "with less of both limits", **_share(found.joint_steps[0].fraction), "against": both,
               "means": STEP_MEANS}  # fmt: skip


def _step_words(step: OccupancyStep) -> str:
    unit = "registers per thread" if step.resource == REGISTERS else "B of shared memory per block"
    return f"{step.now} to {step.to} {unit}"


def _verdict_rows(view: KernelView, most_rules: int) -> Iterator[Row]:
    ours = view.diagnosis
    if not view.launches:
        yield {"title": ALL_FAILED, "value": "failed"}
    for cause in ours.causes if ours else ():
        yield {"title": cause.says, "value": "cause"}
    if ours and not ours.causes and ours.unexplained:
        yield {"title": ours.unexplained, "value": "no cause"}
    for one in ours.ruled_out if ours else ():
        yield {"title": f"{one.label}, as {one.reason}", "value": "ruled out"}
    for label in ours.possible if ours else ():
        yield {"title": label, "value": "perhaps"}
    if ours and ours.collect:
        yield {"title": f"{', '.join(ours.collect)} (groups of ncu-bench machines --metrics)", "value": "not counted"}
    for rule in view.rules[:most_rules]:
        yield _rule_row(rule)
    if len(view.rules) > most_rules:
        more = counted(len(view.rules) - most_rules, "more result", "more results")
        yield {"title": f"{more} of NVIDIA's rules: --format json", "value": None}


def _rule_row(rule: RuleResult) -> Row:
    local = "local " if rule.speedup_type == "local" else "est. "
    agreement = SAID_OF_RULES.get(rule.agreement, "not compared") + (f": {rule.ours}" if rule.ours else "")
    return {
        "title": f"NVIDIA's {rule.name or 'rule'}: {telling_sentences(rule.text)}",
        "value": None if rule.speedup is None else f"{local}{rule.speedup:.1f} %",
        "against": rule.answer or agreement,
        "message": rule.text,
    }


def telling_sentences(text: str) -> str:
    """The first sentence of a rule's message; if it has no number, also the next one that has."""
    sentences = [one.strip().removesuffix(".") for one in re.split(SENTENCE_END, text) if one.strip()]
    if not sentences:
        return ""
    numbered = [one for one in sentences if re.search(r"\d", one)]
    shown = sentences[:1] if sentences[0] in numbered[:1] or not numbered else [sentences[0], numbered[0]]
    return ". ".join(shown)


def _missing(view: KernelView, part: str) -> str:
    """The uncollected facts of a part: every metric, or the first ones by title and the number of the rest."""
    titles = view.missing[part]
    if not view.of_part(part):
        return f"every metric of {PARTS[part][2:]}"
    more = [f"{len(titles) - MISSING_NAMED} more"] if len(titles) > MISSING_NAMED else []
    return f"{PARTS[part][2:]} ({', '.join([*titles[:MISSING_NAMED], *more])})"
