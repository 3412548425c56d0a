"""MFU and MBU of a phase: the share of a machine's peak rates that its least work takes in the measured time.

MFU (model FLOPs utilisation; Chowdhery et al., PaLM, 2022, appendix B) = FLOPs by arithmetic / (time x peak). MBU
(memory bandwidth utilisation) = bytes that must be read and written / (time x bandwidth). Both count the needs of the
model, not the work of a program, so needless work lowers them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.language.step_work import StepWork

DEFINITIONS = (
    "MFU = FLOPs of products and attention by arithmetic, 2 per parameter and token, attention causal (a score "
    "that the mask skips does not count) / (time x peak of the type); MBU = active weights + KV cache read and "
    "written + activations / (time x DRAM bandwidth): what the model needs at least, not what was moved"
)


@dataclass(frozen=True)
class Utilisation:
    """Shares, 1 for all, each None without its peak: of FLOP/s, of DRAM bandwidth, and of the roof, the greater one.

    `said` names both peaks, with their rates and machine.
    """

    mfu: float | None
    mbu: float | None
    said: str

    @property
    def of_the_roof(self) -> float | None:
        """The least time that the machine allows / the measured one."""
        return None if self.mfu is None or self.mbu is None else max(self.mfu, self.mbu)


def utilisation(work: StepWork, nanoseconds: float, machine: Machine, unit: str | None) -> Utilisation:
    """The utilisation of a machine's `unit`, such as tensor_bf16, and DRAM, by work that took this long."""
    seconds = nanoseconds / 1e9
    peak = machine.rates.get(unit) if unit is not None else None
    bandwidth = machine.rates.get("dram")
    source = "measured" if machine.measured else "data sheet, dense"
    parts = [
        f"MFU is of {peak.value / 1e12:.4g} TFLOP/s ({unit_title(peak.unit)}, {source})" if peak is not None else "",
        f"MBU is of {bandwidth.value / 1e9:.4g} GB/s" if bandwidth is not None else "",
    ]
    return Utilisation(
        work.causal_flops / seconds / peak.value if peak is not None else None,
        work.bytes / seconds / bandwidth.value if bandwidth is not None else None,
        f"on {machine.id} {' and '.join(filter(None, parts)) or 'neither peak is known'}",
    )
