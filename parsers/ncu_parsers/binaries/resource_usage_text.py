"""Kernel resources in the output of `ptxas -v` and `cuobjdump -res-usage`, among other lines of a build.

Source of the lines: "CUDA Compiler Driver NVCC", Printing Code Generation Statistics.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ncu_parsers.binaries.cubin import RESERVED_SHARED_BYTES, RESERVED_SINCE
from ncu_parsers.binaries.kernel_resources import KernelResources, Spills

_COMPILING = re.compile(r"ptxas\S* info\s*:\s*Compiling entry function '([^']+)' for '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_USED = re.compile(r"ptxas\S* info\s*:\s*Used (\d+) registers")
_BARRIERS, _SHARED = re.compile(r"used (\d+) barriers"), re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_FUNCTION = re.compile(r"^\s*Function (\S+):\s*$")
_RESOURCES = re.compile(r"^\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_IMAGE = re.compile(r"^\s*arch = (\w+)")
WORDS = (b"Compiling entry function '", b"Resource usage:")
"""A text with one of these is output of ptxas or cuobjdump."""


def resources_in_text(text: str) -> list[KernelResources]:
    """The kernels in the output of ptxas or cuobjdump, in text order; [] if there are none."""
    found: list[KernelResources] = []
    architecture, function, in_entry = "", "", False
    for line in text.splitlines():
        if match := _COMPILING.search(line):
            found.append(KernelResources(match[1], match[2]))
            in_entry = True
        elif match := _PROPERTIES.search(line):
            in_entry = bool(found) and match[1] == found[-1].name
        elif found and in_entry and (match := _FRAME.search(line)):
            frame, stored, loaded = map(int, match.groups())
            found[-1] = replace(found[-1], stack_bytes=frame, spills=Spills(stored, loaded))
        elif found and (match := _USED.search(line)):
            found[-1] = _with_use(found[-1], line, int(match[1]))
        elif match := _IMAGE.match(line):
            architecture = match[1]
        elif match := _FUNCTION.match(line):
            function = match[1]
        elif function and (match := _RESOURCES.match(line)):
            registers, stack, shared = map(int, match.groups())
            found.append(
                KernelResources(
                    function, architecture, registers, stack, shared_bytes=_without_reserved(shared, architecture)
                )
            )
            function = ""
    return found


def _with_use(kernel: KernelResources, line: str, registers: int) -> KernelResources:
    barriers, shared = _BARRIERS.search(line), _SHARED.search(line)
    return replace(
        kernel,
        registers=registers,
        barriers=int(barriers[1]) if barriers else None,
        shared_bytes=int(shared[1]) if shared else 0,
    )


def _without_reserved(shared: int, architecture: str) -> int | None:
    """Static shared memory in bytes without the driver's share, which cuobjdump includes; None if that is unknown."""
    digits = re.search(r"\d+", architecture)
    if shared == 0 or digits is None:
        return None if shared else 0
    return max(shared - RESERVED_SHARED_BYTES, 0) if int(digits[0]) >= RESERVED_SINCE else shared
