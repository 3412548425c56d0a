"""A formula of the time of operators that move data (element-wise, normalisation, copy): their bytes, and the launch.

Shapes do not show what strides and broadcasts cost, so operators that rearrange (a concatenation, a copy, operands of
different shapes) are learnt separately from those that stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ncu_tools.model.expected_time.hardware import Hardware
from ncu_tools.model.expected_time.physics import Floats, PhysicalNumber, Physics, Work

NUMBERS = {
    "dram": PhysicalNumber(0.8, 0.05, 1.2, "share of the DRAM bandwidth that is reached"),
    "launch_us": PhysicalNumber(1.6, 0.3, 20, "us of an operator that does nothing"),
}


def movement_work(moved: Floats, rearranges: Floats) -> Work:
    """The columns of operators that read and write `moved` bytes in total; `rearranges` is 1 if in another order."""
    return {"moved": np.asarray(moved, np.float32), "rearranges": np.asarray(rearranges, np.float32)}


def _parts(
    hardware: Hardware, work: Work, numbers: Sequence[float], choice: Sequence[Floats]
) -> tuple[Floats, dict[str, Floats]]:
    dram, launch = numbers
    moving = work["moved"] / (hardware.dram * dram)
    return launch + moving, {"moving": moving, "launching": np.full_like(moving, launch)}


MOVEMENT = Physics("movement", NUMBERS, np.zeros((1, 1), np.float32), _parts)
