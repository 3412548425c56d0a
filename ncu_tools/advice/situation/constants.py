"""The physical constants of the levers and of the time model, with their sources in `constants.toml`."""

from __future__ import annotations

from typing import Any

from ncu_launch.files.toml_tables import table_beside


def constants() -> dict[str, Any]:
    """The constants by lever; those that all levers use are under "model"."""
    return table_beside(__file__, "constants")
