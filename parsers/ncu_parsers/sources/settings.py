"""What a user passes for reading reports. It travels with each `Source`, so that two threads may differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Files read together with traces, and the description of buffers; "" for what is not given.

    `formulas`: TOML of operator formulas (`ncu_launch.operators.user_formulas`). `capture`: the trace of the run that
    captured CUDA graphs (`derived.operators.graph_captures`). `layout` and `event_names`: of buffers of records from
    inside kernels (`warp_ranges.profiler_buffer`).
    """

    formulas: str = ""
    capture: str = ""
    layout: str = ""
    event_names: str = ""


NOT_SET = Settings()
