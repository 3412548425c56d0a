"""The GPU metrics that PyTorch's profiler samples for `--metrics`."""

from __future__ import annotations

from collections.abc import Sequence

from ncu_launch.files.toml_tables import table_beside

GIVEN_WITHOUT_SAMPLES = ("time", "flops")
"""Groups that a trace contains without samples: times, and FLOPs from shapes."""


def sampled_groups() -> tuple[str, ...]:
    """Every group that can be sampled, in table order."""
    return tuple(table_beside(__file__, "pytorch_groups"))


def sampled_metrics(asked: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """CUPTI's metrics for the groups and full names in `asked`, each once; and the names that cannot be sampled."""
    groups = table_beside(__file__, "pytorch_groups")
    metrics, cannot = list[str](), list[str]()
    for name in asked:
        if name in groups:
            metrics += groups[name]["metrics"]
        elif "__" in name and not any(letter in name for letter in "*?[:"):
            metrics.append(name.removeprefix("="))
        elif name not in GIVEN_WITHOUT_SAMPLES:
            cannot.append(name)
    return tuple(dict.fromkeys(metrics)), tuple(cannot)
