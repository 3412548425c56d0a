"""The disassembly of a kernel, by NVIDIA's package, else by nvdisasm; none if neither is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ncu_parsers.ncu_rep.sass.sass_by_nvdisasm import disassembled, tool_path
from ncu_parsers.ncu_rep.sass.sass_by_package import Texts, is_installed, texts_by_package

DISTRIBUTION = "ncu-report"

_disassembly = lru_cache(maxsize=8)(disassembled)
"""Cached, since consecutive launches of a module each need its disassembly."""


class KernelText:
    """The disassembly of a binary report in an uncompressed file."""

    def __init__(self, report: Path) -> None:
        self._report = report

    @cached_property
    def _by_package(self) -> Texts:
        return texts_by_package(self._report)

    def of(
        self, kernel: str, addresses: Sequence[int], first: int | None, cubin: Callable[[], bytes]
    ) -> list[str | None]:
        """The instructions at these addresses of the kernel with this mangled name; None where unknown.

        nvdisasm needs the address of the kernel's `first` instruction, and its `cubin`.
        """
        known = self._by_package.get(kernel, {})
        texts = [known.get(address) for address in addresses]
        if any(texts) or first is None or tool_path() is None:
            return texts
        return _disassembly(cubin()).of(kernel, addresses, first)


def installed() -> str:
    """The available disassemblers, as "ncu-report VERSION; PATH of nvdisasm"; "" if there is none."""
    package = ""
    if is_installed():
        try:
            package = f"{DISTRIBUTION} {version(DISTRIBUTION)}"
        except PackageNotFoundError:  # imported from an ncu folder
            package = DISTRIBUTION
    return "; ".join(filter(None, (package, tool_path())))
