"""Count, with NVIDIA's own scheduler, the passes of every combination of metric groups, and write passes.toml.

    pip install nvidia-cuda-cupti==13.4.92 && python benchmarks/pass_counts.py            # every chip but Volta
    pip install nvidia-cuda-cupti==13.0.85 && python benchmarks/pass_counts.py GV100      # the last that knows Volta

CUPTI's host library needs neither GPU nor driver. The table lists only combinations that need more passes than any of
their subsets: a set of groups needs the maximum over the listed combinations within it. From Volta to Hopper this
reproduces every count. From Blackwell on the scheduler is slow and not quite regular: only combinations of up to four
groups are counted, and of 240 larger ones tried, 58 were off by one pass.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import files, version
from itertools import combinations
from pathlib import Path
from typing import Any

from ncu_launch.counters.chips import chips, find_chip
from ncu_launch.counters.metric_groups import group_names, select

TABLE = Path(__file__).parent.parent / "launch" / "ncu_launch" / "counters" / "tables" / "passes.toml"
PACKAGE = "nvidia-cuda-cupti"
TYPES = {"half": None, "fp32": "fp32", "tf32": "tf32", "fp64": "fp64", "fp8": "fp8", "int8": "int8"}
"""Kinds of tensor counters that the group flops may include, and the workload's dtype that selects each."""

RAW_SCHEDULER_SAYS: dict[str, dict[str, int]] = {
    "GV100": {"speed-of-light": 18},
    "GA102": {"speed-of-light": 8, "stalls": 4},
    "GA10B": {"speed-of-light": 8, "stalls": 4},
    "AD102": {"speed-of-light": 8, "stalls": 4},
    "GB100": {"speed-of-light": 9},
    "GB110": {"speed-of-light": 10},
    "GB10B": {"speed-of-light": 10},
    "GB202": {"tensor": 11},
    "GB20B": {"tensor": 11, "speed-of-light": 8},
    "GR100": {"tensor": 9},
}
"""Passes by CUPTI's older interface (NVPW) or by another order of the metrics, where these give one more."""

MOST_GROUPS = {"GB": 4, "GR": 4}
"""Maximum number of groups combined, by prefix of the chip family; other families have no limit."""

HEADER = """\
# Passes of the hardware counters: combinations of groups that need more passes than any part of them. What a set of
# groups needs is the most that any combination within it needs, and 1 where none is listed. half, fp32, tf32, fp64, fp8
# and int8 stand for the group flops with the tensor counters of that type. Counters of the code (SASS) take one more
# pass. Written by benchmarks/pass_counts.py with CUPTI's host interface ({versions});
# where its older interface says one more, that is the number here. Exact up to Hopper; from Blackwell on combinations
# of more than four groups may be off by one. Chips of a family are alike. Xavier (GV11B) was not counted.
"""


class Cupti:
    """The functions of CUPTI's host interface that count passes. Layouts: cupti_profiler_host.h of CUDA 13."""

    def __init__(self) -> None:
        shared_objects = {Path(file.name).name.split(".so")[0]: file.locate() for file in files(PACKAGE) or []}
        ctypes.CDLL(str(shared_objects["libnvperf_host"]), mode=ctypes.RTLD_GLOBAL)
        self.cupti = ctypes.CDLL(str(shared_objects["libcupti"]))
        self.has_pass_sets = version(PACKAGE) >= "13.4"

    def passes(self, chip: str, metrics: Iterable[str]) -> int:
        """Number of passes that the scheduler needs for these metrics.

        Raises `RuntimeError` if the chip lacks a metric.
        """
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        more = [("pass_set", ctypes.c_char_p)] if self.has_pass_sets else []
        fields = [("kind", ctypes.c_int), ("chip", ctypes.c_char_p), ("available", pointer), ("host", pointer), *more]
        host = self._call("Initialize", fields, chip=chip.encode()).host
        try:
            names = [name.encode() for name in metrics]
            array = (ctypes.c_char_p * len(names))(*names)
            self._call(
                "ConfigAddMetrics", [("host", pointer), ("names", pointer), ("count", size)],
                host=host, names=ctypes.cast(array, pointer), count=len(names),
            )  # fmt: skip
            length = self._call("GetConfigImageSize", [("host", pointer), ("size", size)], host=host).size
            image = ctypes.cast((ctypes.c_uint8 * length)(), pointer)
            fields = [("host", pointer), ("size", size), ("image", pointer)]
            self._call("GetConfigImage", fields, host=host, size=length, image=image)
            fields = [("size", size), ("image", pointer), ("passes", size)]
            return int(self._call("GetNumOfPasses", fields, size=length, image=image).passes)
        finally:
            self._call("Deinitialize", [("host", pointer)], host=host)

    def _call(self, function: str, fields: list[tuple[str, Any]], **values: Any) -> Any:
        layout = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p), *fields]
        parameters = type("Parameters", (ctypes.Structure,), {"_fields_": layout})(**values)
        parameters.structSize = ctypes.sizeof(parameters)
        code = getattr(self.cupti, f"cuptiProfilerHost{function}")(ctypes.byref(parameters))
        if code:
            raise RuntimeError(f"cuptiProfilerHost{function}: error {code}")
        return parameters


def combinations_listed(cupti: Cupti, family: str) -> dict[int, list[str]]:
    """Combinations of groups that need more passes than their subsets on this family: passes -> combinations."""
    listed: dict[int, list[frozenset[str]]] = {}
    counted: dict[tuple[str, ...], int] = {}
    for features, dtype in _every_combination(MOST_GROUPS.get(family[:2])):
        wanted = ["flops" if feature in TYPES else feature for feature in sorted(features)]
        selection = select(wanted, find_chip(family), dtype=dtype)
        metrics = tuple(sorted(one.name for one in selection.counters if not one.is_sass and not one.by_tool))
        if metrics not in counted:
            counted[metrics] = cupti.passes(family, metrics)
        count = max(counted[metrics], *_raw_scheduler_says(family, features), 1)
        parts = (passes for passes, sets in listed.items() for one in sets if one <= features)
        if count > max(parts, default=1):
            listed.setdefault(count, []).append(features)
    entries = {count: [" ".join(sorted(one)) for one in listed[count]] for count in sorted(listed)}
    return {count: sorted(lines, key=lambda line: (line.count(" "), line)) for count, lines in entries.items()}


def _raw_scheduler_says(family: str, features: frozenset[str]) -> list[int]:
    return [0, *(count for group, count in RAW_SCHEDULER_SAYS.get(family, {}).items() if group in features)]


def _every_combination(most: int | None) -> Iterator[tuple[frozenset[str], str | None]]:
    """Every set of groups with hardware counters, small ones first, with each kind of tensor counters and its dtype."""
    groups = [name for name in group_names() if name not in ("time", "flops", "spills")]
    for count in range((most or len(groups)) + 1):
        for chosen in combinations(groups, count):
            yield frozenset(chosen), None
            if "tensor" not in chosen:
                for kind, dtype in TYPES.items():
                    yield frozenset((*chosen, kind)), dtype


def main(families: list[str]) -> None:
    """Count the passes of the named families (default: all that this CUPTI knows), and write the table."""
    from ncu_launch.counters.metrics import table

    cupti = Cupti()
    before = table("passes") if TABLE.exists() else {}
    counts = {name: dict(entries) for name, entries in before.get("family", {}).items()}
    versions = {**before.get("versions", {}), "GV100" if families == ["GV100"] else "others": version(PACKAGE)}
    known = dict.fromkeys(chip.family for chip in chips())
    for family in families or [name for name in known if name not in ("GV100", "GV11B")]:
        counts[family] = {str(count): entries for count, entries in combinations_listed(cupti, family).items()}
        print(f"{family}: {sum(map(len, counts[family].values()))} combinations", flush=True)
    text = HEADER.format(versions=", ".join(f"{what} {number}" for what, number in sorted(versions.items())))
    text += "\n[versions]\n" + "".join(f'{what} = "{number}"\n' for what, number in sorted(versions.items()))
    for family in (name for name in known if name in counts):
        text += f"\n[family.{family}]\n"
        for count, entries in counts[family].items():
            text += f"{count} = [\n" + "".join(f'    "{entry}",\n' for entry in entries) + "]\n"
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
