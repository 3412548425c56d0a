"""The physical constants of levers and of the model, with their sources in `constants.toml`."""

from __future__ import annotations

from typing import Any

from ncu_launch.files.toml_tables import table_beside


def constants() -> dict[str, Any]:
    """The constants by lever, and under "model" those of every one."""
    return table_beside(__file__, "constants")
