"""Take turns measuring on this machine: one measurement at a time per GPU, or on the CPU, across processes.

A turn is a file lock, which the system releases when the process ends.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from ncu_launch.files.file_locks import locked
from ncu_launch.profilers.installed_tools import gpus

CPU = "cpu"
VISIBLE = "CUDA_VISIBLE_DEVICES"
ASKED_EVERY_S = 0.1


def visible_gpus() -> list[str]:
    """The GPUs that a child process may use, by their names in CUDA_VISIBLE_DEVICES, else by index.

    [] without a driver.
    """
    installed = gpus()
    if not installed or VISIBLE not in os.environ:
        return [str(gpu.index) for gpu in installed]
    named = (name.strip() for name in os.environ[VISIBLE].split(","))
    return list(takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), named))  # CUDA ignores the rest


def environment_of(device: str) -> dict[str, str]:
    """Environment variables that restrict a program to this device.

    nvidia-smi numbers GPUs by PCI bus, which CUDA does only if CUDA_DEVICE_ORDER says so. Numbers taken from an
    existing CUDA_VISIBLE_DEVICES already follow the order in force.
    """
    if device == CPU:
        return {}
    return {VISIBLE: device} if VISIBLE in os.environ else {VISIBLE: device, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@contextmanager
def turn(devices: Sequence[str], stopped: Callable[[], object], folder: str | None = None) -> Iterator[str]:
    """Wait until one of `devices` is free, lock it within the block, and yield it; without devices, lock the CPU.

    Processes that take turns must use the same `folder`, by default the temporary folder. Raises `KeyboardInterrupt`
    once `stopped()` is true. On a file system without locks, every device counts as free.
    """
    while True:
        for device in devices or (CPU,):
            with locked(_lock_file(device, folder or tempfile.gettempdir()), wait=False, mode=0o600) as is_ours:
                if is_ours:
                    yield device
                    return
        if stopped():
            raise KeyboardInterrupt
        time.sleep(ASKED_EVERY_S)


def _lock_file(device: str, folder: str) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0  # one file per user, which other users cannot lock
    return Path(folder) / f"ncu-bench-turn-{user}-{device.replace(os.sep, '-')}.lock"
