"""Settings of the whole process that several threads may want at once: the first sets them, the last puts them back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


def process_wide(setting: Callable[[], Callable[[], None]]) -> Callable[[], AbstractContextManager[None]]:
    """A block inside which a setting holds. `setting` makes it, and gives what puts back what was there before.

    Were each block to put back what it found, those of two threads that overlap would leave the setting behind.
    """
    lock = threading.Lock()
    inside: list[Callable[[], None]] = []  # what the last one to leave has to do, once for each block

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
