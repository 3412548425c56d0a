"""Read the next part of something in a thread, while the part before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Part = TypeVar("Part")


def one_ahead(parts: Iterator[Part]) -> Iterator[Part]:
    """The same parts, each read in a thread while the one before it is used; the first one is read at once."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = reader.submit(next, parts, None)
            yield part
