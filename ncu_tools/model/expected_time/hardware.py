"""A machine in terms of the formulas: rates of a data type, bandwidth, SMs, L2; and families of similar machines."""

from __future__ import annotations

from typing import NamedTuple

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.ceilings.machine_files import DRAM, Machine


class Stored(NamedTuple):
    """How a data type is stored and computed in a GEMM: a row of `types.toml`.

    `a`, `b` and `out` are bytes per element of activations, weights and result. With `quantises`, activations have 16
    bits and are converted first, which reads and writes them once more. The first of `units` that a machine has
    computes the type. `like` is the type whose measured times are used for it, "" if there are none.
    """

    a: float
    b: float
    out: float
    units: tuple[str, ...]
    quantises: bool = False
    like: str = ""


def types() -> dict[str, Stored]:
    """The data types of operators, by name."""
    rows = table_beside(__file__, "types")["types"]
    return {name: Stored(**{**row, "units": tuple(row["units"])}) for name, row in rows.items()}


class Hardware(NamedTuple):
    """A machine as the physics sees it: rates per microsecond (FLOP/us, B/us), number of SMs, bytes of L2 (0: none)."""

    flops: float
    dram: float
    sms: float
    l2: float


def hardware_of(machine: Machine, dtype: str) -> Hardware | str:
    """The hardware that computes `dtype` on a machine, or the reason why it is unknown."""
    unit = next((unit for unit in types()[dtype].units if unit in machine.rates), None)
    if unit is None and dtype in machine.rates:
        return f"{machine.id} has no tensor cores for {dtype}, and times without them are not known"
    if unit is None:
        return f"no peak for {dtype} is known of {machine.id}"
    if DRAM not in machine.rates:
        return f"the bandwidth of {machine.id} is not known"
    if machine.sm_count is None:
        return f"the number of SMs of {machine.id} is not known"
    return Hardware(
        machine.rates[unit].value / 1e6, machine.rates[DRAM].value / 1e6, machine.sm_count, machine.l2_bytes or 0.0
    )


def unit_of(machine: Machine, dtype: str) -> str:
    """The unit that computes `dtype` on a machine; "" if it has none."""
    return next((unit for unit in types()[dtype].units if unit in machine.rates), "")


def roof_of(machine: Machine, dtype: str) -> Hardware | None:
    """Peak and bandwidth of a machine whose SMs are unknown; None if either is unknown."""
    unit = unit_of(machine, dtype)
    if not unit or DRAM not in machine.rates:
        return None
    return Hardware(machine.rates[unit].value / 1e6, machine.rates[DRAM].value / 1e6, 1.0, 0.0)


FAMILIES = (("9.0",), ("10.0", "10.3"), ("8.0",), ("8.6", "8.7", "8.9"), ("12.0", "12.1"), ("7.5",), ("7.0",), ("6.0",))
"""Compute capabilities grouped by chips with the same tensor instructions and similar library kernels."""
WITHOUT_WAITING = ("9.0", "10.0")
"""Families whose tensor instructions read shared memory asynchronously (wgmma, tcgen05); others have mma."""


def family_of(machine: Machine) -> str:
    """The family of a machine: the first compute capability in it, or the machine's own."""
    capability = machine.compute_capability or ""
    return next((family[0] for family in FAMILIES if capability in family), capability)


TWICE_THE_EXPONENTIALS = ("10.3",)
"""Compute capabilities whose SMs compute twice as many exponentials per clock as others (16).

Source, for Blackwell Ultra: developer.nvidia.com/blog/making-softmax-more-efficient-with-nvidia-blackwell-ultra.
"""


def exponentials_of(machine: Machine) -> float:
    """Exponentials per clock of an SM, relative to most GPUs."""
    return 2.0 if machine.compute_capability in TWICE_THE_EXPONENTIALS else 1.0
