"""Read the next part of something in a thread, while the part before it is used; or nothing in threads at all."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

Part = TypeVar("Part")


def one_ahead(parts: Iterator[Part]) -> Iterator[Part]:
    """The same parts, each read in a thread while the one before it is used; the first one is read at once.

    The thread has the settings of the calling one, as the memory limit.
    """
    settings = copy_context()

    def read() -> Part | None:
        return settings.run(next, parts, None)

    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(read)
        while (part := coming.result()) is not None:
            coming = reader.submit(read)
            yield part


_beside_others: ContextVar[bool] = ContextVar("beside others", default=False)


@contextmanager
def beside_others() -> Iterator[None]:
    """Read reports in this thread alone, as long as the block: other processes have work for the other cores."""
    token = _beside_others.set(True)
    try:
        yield
    finally:
        _beside_others.reset(token)


def reads_beside_others() -> bool:
    """Whether this is inside of `beside_others`."""
    return _beside_others.get()
