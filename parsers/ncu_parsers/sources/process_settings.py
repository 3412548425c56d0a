"""Process-wide settings shared by threads: the first block applies a setting, the last one to end restores it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial


def process_wide(setting: Callable[[], Callable[[], None]]) -> Callable[[], AbstractContextManager[None]]:
    """Make a reference-counted context manager from `setting`, which applies a setting and returns its undo function.

    If each block restored what it found, overlapping blocks of two threads could leave the setting applied.
    """
    lock = threading.Lock()
    inside: list[Callable[[], None]] = []  # the undo function, once per open block

    @contextmanager
    def block() -> Iterator[None]:
        with lock:
            inside.append(inside[0] if inside else setting())
        try:
            yield
        finally:
            with lock:
                put_back = inside.pop()
                if not inside:
                    put_back()

    block.__doc__ = setting.__doc__
    return block


@process_wide
def one_heap() -> Callable[[], None]:
    """Arrow's buffers come from the heap that numpy's come from: two heaps keep a fifth more of what was freed."""
    import pyarrow as pa  # slow to import

    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    return partial(pa.set_memory_pool, usual)
