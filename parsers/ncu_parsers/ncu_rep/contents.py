"""Contents of a binary report: launches, sections, rules, instances by kind, code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ncu_parsers.ncu_rep.blocks import Blocks, Content, blocks_of, opened
from ncu_parsers.ncu_rep.fields import text_of
from ncu_parsers.ncu_rep.instances import kinds_of, with_instances
from ncu_parsers.ncu_rep.launch_values import launch_batches
from ncu_parsers.ncu_rep.result_details import rules_of
from ncu_parsers.ncu_rep.results import Lost, Result, results_of
from ncu_parsers.ncu_rep.source_code import codes_of
from ncu_parsers.schema.instance_table import KINDS
from ncu_parsers.sources.sources import Source


@dataclass
class Held:
    """How many launches have some content, the most that one launch has, and its names."""

    launches: int = 0
    most: int = 0
    names: dict[str, None] = field(default_factory=dict)

    def add(self, count: int, names: list[str]) -> None:
        """Count a launch with `count` items of these names; nothing if it has none."""
        if count:
            self.launches += 1
            self.most = max(self.most, count)
            self.names |= dict.fromkeys(names)


@dataclass
class Contents:
    """Contents of one report. `launches` counts ranges and graphs too; `rules` has the names of rules with a result.

    `instances` are by kind of key; their `most` is of one metric in one launch. `focus` has the metrics that each rule
    rests on, `losses` notes on damage.
    """

    report: str
    tool_version: str | None
    session: dict[str, str]
    launches: int = 0
    ranges: int = 0
    graphs: int = 0
    kernels: set[str] = field(default_factory=set)
    processes: dict[str, None] = field(default_factory=dict)
    devices: dict[str, None] = field(default_factory=dict)
    metrics: set[str] = field(default_factory=set)
    sets: dict[str, None] = field(default_factory=dict)
    sections: Held = field(default_factory=Held)
    rules: Held = field(default_factory=Held)
    speedups: int = 0
    focus: dict[str, set[str]] = field(default_factory=dict)
    nvtx: Held = field(default_factory=Held)
    instances: dict[str, Held] = field(default_factory=lambda: {kind: Held() for kind in KINDS})
    cubins: int = 0
    cubin_bytes: int = 0
    with_lines: int = 0
    with_ptx: int = 0
    architectures: set[str] = field(default_factory=set)
    source_files: dict[str, None] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)


def contents_of(source: Source) -> Contents:
    """The contents of a binary report. Raises `NcuBenchError` if it cannot be opened."""
    with opened(source) as stream:
        blocks, lost = blocks_of(stream, source.name), Lost()
        found = Contents(source.name, blocks.tool_version, blocks.session)
        codes = np.array(blocks.names.codes, np.int32)
        for result in results_of(stream, blocks, lost):
            _add_result(found, result, blocks.names.texts, codes)
        _add_launches(found, stream, blocks)
        _add_codes(found, stream, blocks)
    if blocks.is_cut:
        found.losses.append("the file ends in damage, and how much is missing is unknown")
    found.losses += lost.notes()
    return found


def _add_result(found: Contents, result: Result, names: list[str], codes: npt.NDArray[np.int32]) -> None:
    message, process = result.message, result.block.process
    found.launches += 1
    if process.number is not None:
        found.processes[f"{process.name or 'process'} ({process.number})"] = None
    sections = [text_of(section.name) for section in message.sections]
    found.sections.add(len(sections), sections)
    found.sets |= dict.fromkeys(text_of(one.name) for section in message.sections for one in section.sets)
    if result.content is Content.KERNEL:
        found.kernels.add(text_of(message.name or message.function))
    found.ranges += result.content is Content.RANGE
    found.graphs += result.content is Content.GRAPH
    rules = rules_of(message)
    found.rules.add(len(rules), [rule.name for rule in rules])
    for rule in rules:
        if rule.metrics:
            found.focus.setdefault(rule.name, set()).update(rule.metrics.split("; "))
    found.speedups += sum(bool(rule.speedup) for rule in rules)
    pushed = [one for thread in message.nvtx.threads for one in thread.domains]
    found.nvtx.add(sum(len(one.ranges) for one in (*message.nvtx.started, *pushed)), [])
    _add_instances(found, result, names, codes)


def _add_instances(found: Contents, result: Result, names: list[str], codes: npt.NDArray[np.int32]) -> None:
    metrics = with_instances(result, codes)
    named = [names[codes[metric.name]] for metric in metrics]
    of_kind: dict[str, list[tuple[str, Any]]] = {}
    for metric, name, kind in zip(metrics, named, kinds_of(metrics, named), strict=True):
        of_kind.setdefault(kind, []).append((name, metric))
    for kind, some in of_kind.items():
        found.instances[kind].add(max(len(metric.instances) for _, metric in some), [name for name, _ in some])


def _add_launches(found: Contents, stream: BinaryIO, blocks: Blocks) -> None:
    for batch in launch_batches(stream, blocks, Lost(), found.report):
        found.metrics |= batch.metrics.keys()
        name = batch.metrics.get("device__attribute_display_name")
        found.devices |= dict.fromkeys(name.texts.values() if name is not None else ())


def _add_codes(found: Contents, stream: BinaryIO, blocks: Blocks) -> None:
    for code in codes_of(stream, blocks):
        found.cubins += bool(code.cubin)
        found.cubin_bytes += len(code.cubin)
        found.with_lines += code.has_lines
        found.with_ptx += code.has_ptx
        if code.compute_capability is not None:
            found.architectures.add(code.compute_capability)
        found.source_files |= dict.fromkeys(code.files)
