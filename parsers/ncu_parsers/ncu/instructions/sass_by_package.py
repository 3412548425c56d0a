"""The text of instructions in a binary report, by NVIDIA's optional package (the extra `ncu-rep`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

PACKAGE = "ncu_report"


class SassText:
    """The instructions of the kernels of a report as text, where the package knows them."""

    def __init__(self, actions: dict[str, list[Any]]) -> None:
        self._actions = actions
        self._known: dict[tuple[str, int], str | None] = {}

    def of(self, kernel: str, addresses: Sequence[int]) -> list[str | None]:
        """The instructions at these addresses of the kernel with this mangled name; None where they are not known."""
        return [self._text(kernel, address) for address in addresses]

    def _text(self, kernel: str, address: int) -> str | None:
        """The text at an address. Launches of one kernel in several processes have it at different ones."""
        place = kernel, address
        if place not in self._known:
            texts = (action.sass_by_pc(address) for action in self._actions.get(kernel, ()))
            self._known[place] = next((text for text in texts if text), None)
        return self._known[place]


@contextmanager
def sass_of(stream: BinaryIO) -> Iterator[SassText]:
    """The text of the instructions of a report in a file; of none if the package is missing or cannot read it."""
    try:
        package = importlib.import_module(PACKAGE)
        context = package.load_report(str(stream.name))
        actions: dict[str, list[Any]] = {}
        for part in (context.range_by_idx(place) for place in range(context.num_ranges())):
            for action in (part.action_by_idx(place) for place in range(part.num_actions())):
                actions.setdefault(action.name(action.NameBase_MANGLED), []).append(action)
    except Exception:  # no documented type: the package may be missing, too old, or throw what its library throws
        actions = {}
    yield SassText(actions)
