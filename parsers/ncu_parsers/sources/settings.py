"""Files that a user passes for reading reports. They travel with each `Source`, so that two threads may differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Files that are read with traces; "" if none is given.

    `formulas`: TOML of operator formulas (`ncu_launch.operators.user_formulas`). `capture`: the trace of the run that
    captured CUDA graphs (`derived.operators.graph_captures`).
    """

    formulas: str = ""
    capture: str = ""


NOT_SET = Settings()
