"""Whose turn it is on this machine: one measurement at a time on each GPU, or on the CPU, whichever process asks.

A turn is the lock of a file, which ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

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
    Raises `KeyboardInterrupt` as soon as `stopped` says that nobody waits any longer. On a system without file locks
    every device is free.
    """
    while True:
        for device in devices or (CPU,):
            with _held(device, folder or tempfile.gettempdir()) as held:
                if held:
                    yield device
                    return
        if stopped():
            raise KeyboardInterrupt
        time.sleep(ASKED_EVERY_S)


@contextmanager
def _held(device: str, folder: str) -> Iterator[bool]:
    """Whether the turn is ours, for as long as the block."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield True
        return
    user = os.getuid()  # each user has files of their own: nobody may lock those of others in a shared folder
    path = Path(folder) / f"ncu-bench-turn-{user}-{device.replace(os.sep, '-')}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    held = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        yield held
    finally:
        os.close(handle)
