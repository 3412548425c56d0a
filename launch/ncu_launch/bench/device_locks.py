"""Whose turn it is on this machine: one measurement at a time on each GPU, or on the CPU, whichever process asks.

A turn is the lock of a file, which ends with the process that holds it, however that ends.
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
    """The GPUs that a program started here may use, as CUDA_VISIBLE_DEVICES names them; [] without a driver."""
    installed = gpus()
    if not installed or VISIBLE not in os.environ:
        return [str(gpu.index) for gpu in installed]
    named = (name.strip() for name in os.environ[VISIBLE].split(","))
    return list(takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), named))  # CUDA sees none behind these


def environment_of(device: str) -> dict[str, str]:
    """What a program needs in its environment to use this device alone.

    nvidia-smi counts GPUs in the order of their bus, which is CUDA's only when it is told so. Numbers that
    CUDA_VISIBLE_DEVICES had here already are in the order that holds here already.
    """
    if device == CPU:
        return {}
    return {VISIBLE: device} if VISIBLE in os.environ else {VISIBLE: device, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@contextmanager
def turn(devices: Sequence[str], stopped: Callable[[], object], folder: str | None = None) -> Iterator[str]:
    """Wait until one of these devices is free, and hold it through the block. Without any, it is the CPU's turn.

    Those who take turns have the same `folder`, which is that of temporary files if none is named.
    Raises `KeyboardInterrupt` as soon as `stopped` says that nobody waits any longer. On a file system without locks
    every device is free.
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
    user = os.getuid() if hasattr(os, "getuid") else 0  # each has files of their own, which nobody else can lock
    return Path(folder) / f"ncu-bench-turn-{user}-{device.replace(os.sep, '-')}.lock"
