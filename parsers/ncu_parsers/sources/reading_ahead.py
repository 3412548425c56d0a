"""Read the next part of something in a thread while the current part is used; or disable such threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

Part = TypeVar("Part")


def one_ahead(parts: Iterator[Part]) -> Iterator[Part]:
    """The same parts, each read in a thread while the previous one is used; the first is read at once.

    The thread inherits the settings of the caller, such as the memory limit.
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
    """Within the block, read reports without extra threads: other processes keep the other cores busy."""
    token = _beside_others.set(True)
    try:
        yield
    finally:
        _beside_others.reset(token)


def reads_beside_others() -> bool:
    """True inside `beside_others`."""
    return _beside_others.get()
