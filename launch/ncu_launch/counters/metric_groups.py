"""Resolve `--metrics` (groups, exact names, patterns) into the counters to request from ncu on one chip.

Counters that the chip or this ncu lacks are not requested, because ncu would fail at the first kernel; a note names the
omitted ones.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ncu_launch.counters import metrics
from ncu_launch.counters.chips import Chip, chips, exists, is_conditional, version_text
from ncu_launch.counters.metrics import table
from ncu_launch.errors import WrongUsage, near_names
from ncu_launch.profilers.command_line import Version
from ncu_launch.profilers.sampling.pytorch_groups import sampled_groups

TENSOR_INSTRUCTIONS = ("sm__inst_executed_pipe_tensor_v2.sum", "sm__inst_executed_pipe_tensor.sum")
"""Counters of tensor instructions, by preference. `flops` requests one for types without a tensor counter of their own:
0 means that the tensor cores were idle."""

ENDINGS = ("sum", "avg", "min", "max", "ratio", "pct", "max_rate")
"""First component after a metric's name: how its units are combined, or the part of a ratio.

Source: NVIDIA's Kernel Profiling Guide, Metrics Structure (https://docs.nvidia.com/nsight-compute/ProfilingGuide).
"""

HALF_PRECISIONS = ("fp16", "bf16")
HOPPER = "GH100"
TYPES_WITHOUT_TENSOR_CORES = ("fp32",)
TYPES_COUNTED_ALONE = ("bf16", "fp16", "tf32")
"""Workload types whose counters on Hopper leave room in their pass for the number of all tensor instructions."""
MIXED = "mixed"


@dataclass(frozen=True)
class Counter:
    """A metric to request: its meaning, its unit, and the amount of one count ("2 FLOP", "32 byte"; "" if unknown).

    `group` is "" for a metric requested by name or pattern. `by_tool`: ncu computes it without a counter; it costs no
    pass and is in no chip's list.
    """

    name: str
    group: str
    meaning: str
    unit: str
    per: str = ""
    by_tool: bool = False

    @property
    def is_sass(self) -> bool:
        """True if counted by instrumenting the kernel's code (SASS), which takes a separate pass."""
        return "__sass_" in self.name and ".peak_sustained" not in self.name


@dataclass(frozen=True)
class MetricSelection:
    """A resolved `--metrics`: groups, counters, and notes on corrected and omitted ones.

    `tensor_type` is the input type of the tensor counters in `flops`: half, fp32 (only tensor instructions are
    counted), tf32, fp64, fp8, int8, or tensor (mixed precision: all types).
    """

    groups: tuple[str, ...]
    counters: tuple[Counter, ...]
    notes: tuple[str, ...] = ()
    tensor_type: str = "half"

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics to request, each once."""
        return tuple(dict.fromkeys(counter.name for counter in self.counters))

    @property
    def features(self) -> frozenset[str]:
        """The groups that determine the passes of hardware counters; `flops` appears as its tensor type."""
        hardware = {counter.group for counter in self.counters if not counter.is_sass and not counter.by_tool}
        groups = (hardware & set(self.groups)) - {"time"}
        return frozenset(self.tensor_type if group == "flops" else group for group in groups)

    def drop_unlisted(self, listed: Collection[str]) -> MetricSelection:
        """Drop counters whose base name ncu does not list for the chip; a note names them."""
        kept = [counter for counter in self.counters if counter.by_tool or _is_listed(counter.name, listed)]
        if len(kept) == len(self.counters):
            return self
        names = ", ".join(counter.name for counter in self.counters if counter not in kept)
        return replace(
            self,
            counters=tuple(kept),
            notes=(*self.notes, f"not requested, since this ncu does not list them: {names}"),
        )

    @property
    def others(self) -> tuple[str, ...]:
        """The metrics requested by name or pattern, without those of groups."""
        return tuple(counter.name for counter in self.counters if not counter.group)


def _is_listed(metric: str, listed: Collection[str]) -> bool:
    """True if ncu lists the metric's base name. Metrics that ncu computes itself are in no list, and pass."""
    return metric.split(".")[0] in listed or metric.startswith(("launch__", "device__", "sass__", "regex:", "group:"))


def group_names() -> tuple[str, ...]:
    """Every group, in table order."""
    return tuple(group["name"] for group in metrics.table("groups")["group"])


def group_meaning(name: str) -> str:
    """What a group collects, in one line."""
    return str(_group(name)["meaning"])


@cache
def _group(name: str) -> dict[str, Any]:
    return next(dict(group) for group in metrics.table("groups")["group"] if group["name"] == name)


def select(
    wanted: Sequence[str],
    chip: Chip | None,
    version: Version | None = None,
    *,
    dtype: str | None = None,
    listed: Sequence[str] = (),
) -> MetricSelection:
    """The counters for groups, metric names and patterns, on a chip and in a version of ncu.

    Time is always included, as are ceilings of the requested groups if they cost no pass. With `dtype`, the workload's
    compute type, `flops` counts tensor operations of that type. Patterns are matched against `listed`, the base names
    that ncu lists for the chip. Raises `WrongUsage` for unknown names, for patterns that match nothing, and for metrics
    that do not measure what their name suggests.
    """
    groups = ["time"]
    counters: list[Counter] = counters_of("time", chip, version)
    notes: list[str] = []
    for entry in wanted:
        if entry in group_names():
            groups.append(entry)
            counters += counters_of(entry, chip, version, dtype=dtype)
            counters += _ceilings_of(entry, chip, version, dtype)
            notes += _left_out(entry, chip, version, dtype)
        elif _is_pattern(entry):
            counters += _matching(entry, chip, version, listed)
        else:
            name, note = corrected(entry, group_names())
            counters.append(Counter(name, "", "", ""))
            doubt = "" if listed or entry.startswith("=") else doubt_of(name)
            notes += [each for each in (note, doubt) if each]
    unique = {counter.name: counter for counter in reversed(counters)}
    in_order = dict.fromkeys(counter.name for counter in counters)
    chosen = tuple(unique[name] for name in in_order)
    return MetricSelection(tuple(dict.fromkeys(groups)), chosen, tuple(notes), _tensor_type(chosen, dtype))


def refuse_unknown(wanted: Sequence[str]) -> None:
    """Raise `WrongUsage` for entries that no tool takes on any chip: neither group, nor usable metric, nor pattern."""
    groups = tuple(dict.fromkeys((*group_names(), *sampled_groups())))
    for entry in wanted:
        if entry not in groups and not _is_pattern(entry):
            corrected(entry, groups)


@cache
def _known_bases() -> frozenset[str]:
    """Names up to the first dot of all group metrics, on any chip."""
    counters = (counter for chip in (None, *chips()) for group in group_names() for counter in counters_of(group, chip))
    return frozenset(counter.name.split(".")[0] for counter in counters)


def doubt_of(metric: str) -> str:
    """Why the full name of a metric may be misspelt; "" if there is no reason for doubt.

    Chips have thousands of metrics outside all groups. So a name is doubted only if no metric ends like it, or if it
    differs from a name in a group by the spelling of one word.
    """
    base, _, rest = metric.partition(".")
    if rest and rest.split(".")[0] not in ENDINGS:
        return f"{metric} is not a metric: after the first dot comes one of {', '.join(ENDINGS)}"
    near = [known for known in sorted(_known_bases()) if _differ_in_a_word(base, known)]
    if base in _known_bases() or not near:
        return ""
    return f"{metric} may be misspelt: groups have {near[0]}, and ncu --query-metrics lists all that a chip has"


def _differ_in_a_word(name: str, other: str) -> bool:
    words, others = name.split("_"), other.split("_")
    pairs = [pair for pair in zip(words, others, strict=False) if pair[0] != pair[1]]
    return len(words) == len(others) and len(pairs) == 1 and bool(near_names(pairs[0][0], [pairs[0][1]], cutoff=0.8))


def _is_pattern(entry: str) -> bool:
    return not entry.startswith("=") and any(letter in entry for letter in "*?[")


def _tensor_type(counters: Sequence[Counter], dtype: str | None) -> str:
    if any(counter.name in TENSOR_INSTRUCTIONS for counter in counters):
        return "fp32"
    if dtype is None or dtype in HALF_PRECISIONS:
        return "half"
    return "tensor" if dtype == MIXED else dtype


def counters_of(
    group: str, chip: Chip | None, version: Version | None = None, *, dtype: str | None = None
) -> list[Counter]:
    """The counters of a group that exist on the chip in this version of ncu.

    On an unknown chip: those that every chip has, and the first choice for bytes.
    """
    entry = _group(group)
    source = entry.get("from")
    if source == "flops":
        return _flop_counters(chip, version) + _tensor_counters_of_type(chip, version, dtype)
    if source == "tensor":
        return (
            [_tensor_counter(name, "tensor") for name in chip.tensor_totals if exists(name, chip, version)]
            if chip
            else []
        )
    if source == "bytes":
        return _byte_counters(group, chip, version)
    return [counter for counter in (_from_table(one, group, chip, version) for one in entry["counters"]) if counter]


def _from_table(entry: dict[str, Any], group: str, chip: Chip | None, version: Version | None) -> Counter | None:
    """A counter from a table entry, by the first of its names that exists; None if none does."""
    forms = [entry["name"]] if isinstance(entry["name"], str) else entry["name"]
    if chip is not None and chip.family in entry.get("except_families", ()):
        return None
    for name in forms:
        if _is_there(name, chip, version):
            return Counter(
                name, group, entry["meaning"], entry["unit"], entry.get("per", ""), entry.get("by_tool", False)
            )
    return None


def _is_there(metric: str, chip: Chip | None, version: Version | None) -> bool:
    """True if a metric of the tables exists on the chip; on an unknown chip, if every chip has it."""
    if chip is not None:
        return exists(metric, chip, version)
    return metric.startswith("dram__bytes.") or not is_conditional(metric)


def _ceilings_of(group: str, chip: Chip | None, version: Version | None, dtype: str | None) -> list[Counter]:
    """The ceiling counters of a group; for tensor operations, only the dense ones."""
    entries = [entry for entry in _group("peaks")["counters"] if entry.get("ceiling_of") == group]
    found = [counter for counter in (_from_table(entry, "peaks", chip, version) for entry in entries) if counter]
    if group not in ("flops", "tensor") or chip is None:
        return found
    counted = {_precision(counter.name) for counter in counters_of(group, chip, version, dtype=dtype)}
    dense = [name for name in chip.tensor_dense if _precision(name) in counted and exists(name, chip, version)]
    for name in dense:
        counted_as = _tensor_counter(name, "")
        found.append(
            Counter(f"{name}.peak_sustained", "peaks", f"{counted_as.meaning}, peak", "op/cycle", counted_as.per)
        )
    return found


def _flop_counters(chip: Chip | None, version: Version | None) -> list[Counter]:
    counters = []
    for precision in metrics.CUDA_CORE_PRECISIONS:
        weights = metrics.flop_weights(precision)
        if precision == "fp32":
            weights |= metrics.packed_fp32_weights()
        for opcode, weight in weights.items():
            name = f"{metrics.SASS_PREFIXES[0]}{opcode}_pred_on.sum"
            if _is_there(name, chip, version):
                counters.append(Counter(name, "flops", f"{opcode}, {precision}", "inst", f"{weight:g} FLOP"))
    return counters


def _tensor_counter(name: str, group: str) -> Counter:
    found = metrics.tensor_counter(name.removesuffix(".sum"))
    precision = found.precision if found else "?"
    part = f", {found.part}" if found and found.part else ""
    unit = "OP" if precision in metrics.TENSOR_INTEGER_PRECISIONS else "FLOP"
    return Counter(name, group, f"tensor cores, {precision}{part}", unit, f"1 {unit}")


def _tensor_counters_of_type(chip: Chip | None, version: Version | None, dtype: str | None) -> list[Counter]:
    """The tensor counters that `flops` needs for one type, chosen to share a pass with time and bytes.

    fp32 does not use the tensor cores, which the count of tensor instructions confirms; it also replaces counters of a
    type that the chip lacks. Half types and unknown types use the dense fp16 and bf16 counters, mixed precision all
    totals, other types their own total. On Volta and Turing all but integers use every floating-point total. On Hopper
    bf16, fp16 and tf32 are counted with the number of all tensor instructions, which distinguishes kernels without any
    from kernels of other types.
    """
    if chip is not None and not chip.has_tensor_cores:
        return []
    if chip is not None and chip.family == HOPPER and dtype in TYPES_COUNTED_ALONE:
        dense = [name for name in chip.tensor_dense if _precision(name) == dtype and "dst_fp16" not in name]
        there = [name for name in dense if exists(name, chip, version)]
        every = [f"{base}.sum" for base in metrics.table("tensor")["evidence"]["of_every_type"]]
        if there and all(exists(name, chip, version) for name in every):
            meaning = "tensor instructions of any type and constant moves"
            return [_tensor_counter(name, "flops") for name in there] + [
                Counter(name, "flops", meaning, "inst") for name in every
            ]
    totals = [name for name in chip.tensor_totals if exists(name, chip, version)] if chip is not None else []
    of_type = _names_of_type(chip, totals, dtype) if chip is not None else []
    if of_type:
        return [_tensor_counter(name, "flops") for name in of_type]
    name = next(name for name in TENSOR_INSTRUCTIONS if _is_there(name, chip, version))
    return [Counter(name, "flops", "tensor instructions: none means idle tensor cores", "inst")]


def _names_of_type(chip: Chip, totals: list[str], dtype: str | None) -> list[str]:
    if chip.is_before_ampere and dtype not in metrics.TENSOR_INTEGER_PRECISIONS:  # these totals share a pass
        return [name for name in totals if _precision(name) not in metrics.TENSOR_INTEGER_PRECISIONS]
    if not totals or dtype in TYPES_WITHOUT_TENSOR_CORES:
        return []
    if dtype is None or dtype in HALF_PRECISIONS:
        return [name for name in chip.tensor_dense if _precision(name) in HALF_PRECISIONS and "dst_fp16" not in name]
    if dtype == MIXED:
        return totals
    return [name for name in totals if _precision(name) == dtype]


def _precision(name: str) -> str:
    counter = metrics.tensor_counter(name.removesuffix(".sum"))
    return counter.precision if counter else ""


def _byte_counters(level: str, chip: Chip | None, version: Version | None) -> list[Counter]:
    """The first set of counters for a level's bytes that the chip has; for DRAM, also of reads and writes if free.

    [] if the chip has none.
    """
    for alternative in metrics.byte_alternatives(level):
        names = {f"{base}.sum": factor for base, factor in alternative.items()}
        if chip is None or all(exists(name, chip, version) for name in names):
            counters = [
                Counter(name, level, _meaning(name), "byte" if factor == 1 else "sector", f"{factor:g} byte")
                for name, factor in names.items()
            ]
            return counters + (_dram_split(chip, version) if level == "dram" and chip else [])
    return []


def _meaning(name: str) -> str:
    if "sysmem" in name:
        return (
            "written to memory shared with the CPU, an upper bound"
            if "write" in name
            else "read from memory shared with the CPU"
        )
    return "read and written"


def _dram_split(chip: Chip, version: Version | None) -> list[Counter]:
    """Bytes read and written, separately, by the names that the chip has; [] on Volta and Turing (an extra pass)."""
    if chip.is_before_ampere:
        return []
    split = [f"dram__bytes_{infix}{way}.sum" for infix in ("", "op_") for way in ("read", "write")]
    return [
        Counter(name, "dram", "read" if "read" in name else "written", "byte", "1 byte")
        for name in split
        if exists(name, chip, version)
    ]


def _left_out(group: str, chip: Chip | None, version: Version | None, dtype: str | None) -> list[str]:
    """Notes on the counters of a group that are not collected here, and why."""
    if group in ("flops", "tensor") and chip is None:
        return [
            "the chip is not known, so tensor operations are not counted: FLOPs of kernels on tensor cores stay unknown"
        ]
    if chip is None:
        return []
    notes = []
    if group in ("flops", "tensor") and chip.has_tensor_cores:
        if not any(exists(name, chip, version) for name in chip.tensor_totals):
            notes.append(_no_tensor_counters_note(chip, version))
        elif group == "flops" and dtype is None and not chip.is_before_ampere:
            notes.append(
                "tensor operations are counted for dense fp16 and bf16 inputs, in one pass; add the group tensor for "
                "every type"
            )
    if group == "dram" and not exists("dram__bytes.sum", chip, version):
        names = ", ".join(counter.name for counter in counters_of("dram", chip, version))
        notes.append(
            f"{chip.name} shares its memory with the CPU and has no DRAM counters: bytes are {names} x 32, "
            "and writes are an upper bound"
            if names
            else f"this ncu counts no memory traffic on {chip.name}: 2025.3 is the first that does"
        )
    return notes


def _no_tensor_counters_note(chip: Chip, version: Version | None) -> str:
    known = f"ncu {version_text(version)}" if version else "this ncu"
    if chip.family == "GV100":
        return f"{known} counts no tensor operations (2023.2 is the first): they are estimated as 512 per instruction"
    return (
        f"{known} counts no tensor operations (2023.2 is the first, for {chip.name} "
        f"{version_text(chip.since) if chip.since and chip.since > (2023, 2) else '2023.2'}): "
        "FLOPs of kernels on tensor cores stay unknown"
    )


def _matching(pattern: str, chip: Chip | None, version: Version | None, listed: Sequence[str]) -> list[Counter]:
    """Metrics that match a pattern, among every group, the chip's tensor counters and ncu's listed base names.

    Raises `WrongUsage` if there are none.
    """
    known = {counter.name: counter for group in group_names() for counter in counters_of(group, chip, version)}
    if chip is not None:
        parts = (name for name in (*chip.tensor_dense, *chip.tensor_sparse) if exists(name, chip, version))
        known = {**{name: _tensor_counter(name, "") for name in parts}, **known}
    found = sorted(name for name in known if fnmatch.fnmatchcase(name, pattern))
    base, dot, suffix = pattern.rpartition(".")
    for name in sorted(listed):
        if dot and fnmatch.fnmatchcase(name, base) and not any(letter in suffix for letter in "*?["):
            found.append(f"{name}.{suffix}")
        elif not dot and fnmatch.fnmatchcase(name, pattern):
            found.append(name)
    if not found:
        raise WrongUsage(
            f"No metric matches {pattern}.",
            "" if listed else "Without ncu and a GPU only the metrics of the groups can be matched.",
            "A name after = goes to ncu unchanged (=regex:lts__t_sectors_op_.*); else give the suffix too, as in "
            "lts__t_sectors_op_*.sum. ncu-bench machines --metrics lists the groups.",
        )
    described = (known.get(name, Counter(name, "", "", "")) for name in dict.fromkeys(found))
    return [replace(counter, group="") for counter in described]


def corrected(name: str, groups: Sequence[str]) -> tuple[str, str]:
    """The metric that `name` means, and a note if it was corrected ("" otherwise).

    Raises `WrongUsage` for names that are neither metrics nor `groups`, and for commonly misunderstood metrics. A name
    after `=` (`=smsp__...`) is passed on unchecked.
    """
    if name.startswith("="):
        return name[1:], ""
    for entry in table("spellings")["corrected"]:
        match = re.fullmatch(entry["pattern"], name)
        if match:
            right = entry["to"].format(**match.groupdict())
            return right, f"{name} exists on no chip; {right} is collected instead" if right != name else ""
    for entry in table("spellings")["refused"]:
        if re.fullmatch(entry["pattern"], name):
            raise WrongUsage(f"{name} is not collected.", entry["why"], _advice(name, entry["use"]))
    if "__" in name:
        return name, ""
    near = near_names(name, groups, most=2, cutoff=0.6)
    raise WrongUsage(
        f"{name} is neither a group of metrics nor a metric name.",
        f"Did you mean {' or '.join(near)}?" if near else "",
        f"Groups are {', '.join(groups)}. Metric names have two underscores, as in dram__bytes.sum.",
    )


def _advice(name: str, group: str) -> str:
    as_it_is = f" To collect it all the same, write ={name}." if "__" in name else ""
    return f"Ask for the group {group} instead.{as_it_is}"
