"""Mangled names, resources and machine code of the kernels in a binary report, from the cubins that it holds."""

from __future__ import annotations

from typing import NamedTuple

from ncu_parsers.binaries.cubin import Cubin
from ncu_parsers.binaries.kernel_resources import KernelResources
from ncu_parsers.ncu_rep.blocks import Content, blocks_of, opened
from ncu_parsers.ncu_rep.results import Lost, results_of
from ncu_parsers.ncu_rep.source_code import codes_of, mangled_name
from ncu_parsers.sources.elf import DamagedBinary
from ncu_parsers.sources.sources import Source


class LaunchedKernel(NamedTuple):
    """A launched kernel with the resources and machine code in its cubin; None and b"" without a readable cubin.

    `mangled` is "" for a range or a graph.
    """

    mangled: str
    resources: KernelResources | None
    code: bytes


def launched_kernels(source: Source) -> list[LaunchedKernel]:
    """One entry per readable result of a binary report, in its order. Raises `NcuBenchError` if it cannot be opened."""
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        cubins = {code.reference: code.cubin for code in codes_of(stream, blocks) if code.cubin}
        read: dict[int, Cubin | None] = {reference: _cubin(content) for reference, content in cubins.items()}
        return [
            _kernel(mangled_name(result), read.get(result.message.source.reference))
            if result.content is Content.KERNEL
            else LaunchedKernel("", None, b"")
            for result in results_of(stream, blocks, Lost())
        ]


def _cubin(content: bytes) -> Cubin | None:
    try:
        return Cubin(content)
    except DamagedBinary:
        return None


def _kernel(mangled: str, cubin: Cubin | None) -> LaunchedKernel:
    if cubin is None:
        return LaunchedKernel(mangled, None, b"")
    try:
        resources = next((one for one in cubin.kernels() if one.name == mangled), None)
        return LaunchedKernel(mangled, resources, cubin.code(mangled))
    except DamagedBinary:
        return LaunchedKernel(mangled, None, b"")
