"""Notes on a device without ceilings: similar known devices, and how to get ceilings."""

from __future__ import annotations

from ncu_tools.ceilings.launch_devices import Device, known_boards, with_other_threads
from ncu_tools.ceilings.machine_files import machines

CHOOSE = "choose a machine with --machine NAME"


def on_an_unknown(device: Device, sms: float | None, *, by_ncu: bool) -> str:
    """The note on a GPU, or on a device with a name."""
    if device.name and not device.capability:  # it was not profiled by ncu
        alike = with_other_threads(device)
        threads = f"OMP_NUM_THREADS={device.threads} " if alike and device.threads else ""
        return f"{alike}: {CHOOSE}, or measure it where it is with {threads}ncu-bench machines measure"
    of_sms = f" and {sms:g} SMs" if sms is not None and known_boards(device.capability, sms) else ""
    others = known_boards(device.capability, sms if of_sms else None)
    alike = f" (of compute capability {device.capability}{of_sms} there are {others})" if others else ""
    own = ", or collect the report's own with --section SpeedOfLight_RooflineChart" if by_ncu else ""
    return f"{alike}: {CHOOSE}{own}"


def on_an_unnamed_cpu() -> str:
    """The note on a CPU that a trace does not name."""
    here = ", ".join(sorted(one.id for one in machines().values() if one.measured))
    measured = f" (measured on this machine: {here})" if here else ""
    return f"{measured}: {CHOOSE}, or measure the CPU where it is with ncu-bench machines measure"
