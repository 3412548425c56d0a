"""Steps of serving engines in a report: their phase, batch and context, if ranges or kernels prove them.

The rules are data (`engine_steps.toml`). Nothing beyond the rules is guessed: a kernel that an engine uses for prompts
and for single tokens alike, as most of llama.cpp's, does not show the phase. Next to a kernel that does, it makes the
phase uncertain, and so does a step that mixes both.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
from ncu_launch.errors import WrongUsage
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema import arrays, tables

from ncu_tools.kernels.names.categories import category_of
from ncu_tools.model.language.step_work import DECODE, PREFILL

ATTENTION = "attention"
SELECT = "select some with --nvtx and a part of the name of their range"


@dataclass(frozen=True)
class EngineStep:
    """A phase of an engine's run. `batch_size` sequences, `tokens` of all their prompts, `context_length` mean cached
    tokens of a sequence; `attention_launches` of a kernel that runs once per layer and step, and `ranges` the number of
    distinct step names, a lower bound on steps. Each is None if the report does not show it. `evidence` are the range
    and the kernel that prove it."""

    engine: str
    phase: str
    batch_size: int | None = None
    tokens: int | None = None
    context_length: int | None = None
    attention_launches: int | None = None
    ranges: int | None = None
    evidence: tuple[str, ...] = ()


def engine_step(table: pa.Table) -> tuple[EngineStep | None, list[str]]:
    """The step that all launches of a table belong to, None if uncertain, and notes with the reason.

    For several steps with one phase and batch, the context is their mean.
    """
    named, notes = _in_ranges(table)
    phases = {step.phase for step in named}
    if len(phases) > 1 or len({step.batch_size for step in named}) > 1:
        return None, [*notes, f"its steps differ in phase or batch: {SELECT}"]
    by_kernel, why_not = _in_kernels(table)
    if not named:
        return (by_kernel if by_kernel is not None and by_kernel.phase else None), [*notes, *why_not]
    evidence = dict.fromkeys(word for one in named for word in one.evidence)
    step = replace(
        named[0],
        engine=next((one.engine for one in named if one.engine), ""),
        ranges=len({one.evidence[0] for one in named}),
        evidence=tuple(evidence),
    )
    contexts = [one.context_length for one in named if one.context_length is not None]
    if contexts:
        step = replace(step, context_length=round(sum(contexts) / len(contexts)))
    if by_kernel is not None and by_kernel.phase in ("", step.phase):
        step = replace(
            step, attention_launches=by_kernel.attention_launches, evidence=(*step.evidence, *by_kernel.evidence)
        )
    return step, notes


def inside(table: pa.Table, pattern: re.Pattern[str]) -> pa.Table:
    """The launches in a range or annotation whose name contains a pattern.

    Raises `WrongUsage` if there is none.
    """
    paths = [tuple(path or ()) for path in table.column("nvtx_path").to_pylist()]
    names = dict.fromkeys(name for path in paths for name in path)
    wanted = {name for name in names if pattern.search(name)}
    if not wanted:
        some = ", ".join(name[:60] for name in list(names)[:5])
        raise WrongUsage(
            f"No launch is in a range whose name has {pattern.pattern}.",
            f"The ranges are {some}{' and others' if len(names) > 5 else ''}."
            if some
            else "No launch is in any range.",
            "Name a part of one, as a regular expression, or leave --nvtx out.",
        )
    return arrays.kept(table, [not wanted.isdisjoint(path) for path in paths])


def _in_ranges(table: pa.Table) -> tuple[list[EngineStep], list[str]]:
    """The steps named by NVTX ranges and annotations; nested ranges are joined if they agree."""
    paths = dict.fromkeys(tuple(path) for path in table.column("nvtx_path").to_pylist() if path)
    steps, notes = list[EngineStep](), list[str]()
    for path in paths:
        found = [one for one in map(_of_range, path) if one is not None]
        if len({(one.phase, one.batch_size) for one in found}) == 1:
            context = next((one.context_length for one in found if one.context_length is not None), None)
            engine = next((one.engine for one in found if one.engine), "")
            named = tuple(name for one in found for name in one.evidence)
            steps.append(replace(found[-1], engine=engine, context_length=context, evidence=named))
        if any(_is_mixed(name) for name in path):
            notes.append("a step prefills some sequences and decodes others: it belongs to neither phase")
    return ([] if notes else list(dict.fromkeys(steps))), list(dict.fromkeys(notes))


@lru_cache(maxsize=4096)
def _of_range(name: str) -> EngineStep | None:
    for rule in _rules("range"):
        match = rule["pattern"].match(name)
        if match is None or _is_mixed(name):
            continue
        values = {key: int(value) for key, value in match.groupdict().items() if value is not None}
        if values.get("decoding"):
            batch, keys = values["decoding"], values.get("keys")
            context = None if keys is None else max(round(keys / batch) - 1, 1)  # one of the keys is the token's own
            return EngineStep(rule["engine"], DECODE, batch, None, context, evidence=(name,))
        if values.get("prefilling"):
            return EngineStep(rule["engine"], PREFILL, values["prefilling"], values.get("tokens"), evidence=(name,))
    return None


def _is_mixed(name: str) -> bool:
    values = (rule["pattern"].match(name) for rule in _rules("range"))
    numbers = [match.groupdict() for match in values if match is not None]
    return any(int(one.get("decoding") or 0) and int(one.get("prefilling") or 0) for one in numbers)


def _in_kernels(table: pa.Table) -> tuple[EngineStep | None, list[str]]:
    """The launches of attention kernels that a rule knows, with their phase, and notes on why it is uncertain.

    The phase is "" for kernels that both phases run, and if other attention kernels ran as well. None if there are no
    such kernels.
    """
    launches = Counter(name for name in tables.words(table, "kernel_name") if name)
    found: dict[int, tuple[Any, dict[str, int]]] = {}
    for number, rule in enumerate(_rules("kernel")):
        matching = {name: count for name, count in launches.items() if rule["pattern"].search(name)}
        if matching:
            found[number] = rule, matching
    if not found:
        return None, []
    rule, matching = next(iter(found.values()))
    matched = next(iter(matching))
    evidence = tuple(name[:60] for name in matching)
    step = EngineStep(rule["engine"], rule["phase"], attention_launches=sum(matching.values()), evidence=evidence)
    others = [name for name in launches if name not in matching and _is_other_attention(name, rule.get("beside"))]
    if others and rule["phase"]:
        return replace(step, phase=""), [
            f"its attention kernels may belong to different phases: {matched[:60]} runs in {rule['phase']} alone, and "
            f"{others[0][:60]} may run in another: {SELECT}"
        ]
    return step, []


def _is_other_attention(name: str, beside: str | None) -> bool:
    """True for an attention kernel that is not listed in `beside` as a companion of a rule's kernels."""
    if beside and re.search(beside, name):
        return False
    return category_of(name) == ATTENTION or any(rule["pattern"].search(name) for rule in _rules("prompts"))


@lru_cache(maxsize=4)
def _rules(kind: str) -> tuple[dict[str, Any], ...]:
    rules = table_beside(__file__, "engine_steps")[kind]
    return tuple({**rule, "pattern": re.compile(rule["pattern"])} for rule in rules)
