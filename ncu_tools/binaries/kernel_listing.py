"""The instructions of a kernel of a binary as text, with their lines of source, disassembled by nvdisasm."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.binaries.code_files import FoundKernel, cubin_with
from ncu_parsers.binaries.cubin import Cubin
from ncu_parsers.binaries.kernel_resources import KernelResources
from ncu_parsers.ncu_rep.instructions.debug_lines import KernelDebug, kernel_debug
from ncu_parsers.ncu_rep.instructions.line_programs import LinePlace
from ncu_parsers.ncu_rep.sass.sass_by_nvdisasm import TOOL, Disassembly, disassembled, tool_path
from ncu_parsers.ncu_rep.sass.sass_text import Instruction, parse_instruction, text_columns
from ncu_parsers.schema import arrays

from ncu_tools.kernels.source.dependencies import Flow, flow_of, live_registers
from ncu_tools.kernels.source.kernel_code import KernelCode

LARGEST_FLOW = 60_000
"""Most instructions of a kernel for which loops and live registers are computed."""
LARGEST_AT_ONCE = 1 << 21
"""Bytes up to which a cubin is disassembled whole; of a larger one, only the kernel asked for."""
_NO_KERNEL = KernelResources("", "")


@dataclass
class CodeListing:
    """Instructions of one kernel in program order: `offsets` in bytes from the first, and `texts`."""

    kernel: FoundKernel
    offsets: list[int]
    texts: list[str]
    debug: KernelDebug | None

    @cached_property
    def instructions(self) -> list[Instruction | None]:
        """The instructions parsed; None for a text that cannot be."""
        return [parse_instruction(text) for text in self.texts]

    @cached_property
    def flow(self) -> Flow | None:
        """The control flow between instructions; None for a kernel of more than `LARGEST_FLOW` instructions."""
        if not self.offsets or len(self.offsets) > LARGEST_FLOW:
            return None
        texts = arrays.texts(self.texts)
        columns = text_columns(texts)
        table = pa.table({"address": pa.array(self.offsets, pa.int64()), **columns})
        return flow_of(KernelCode(self.kernel.resources.name, 0, table, 1, None))

    @cached_property
    def live(self) -> list[int] | None:
        """The number of live registers at each instruction; None if the control flow is unknown."""
        return None if self.flow is None else live_registers(self.flow)

    def line_at(self, offset: int) -> LinePlace | None:
        """The line of source of the instruction at an offset; None if compiled without -lineinfo."""
        places = self._line_offsets
        at = bisect_right(places, offset) - 1
        return self.debug.lines[places[at]] if self.debug is not None and at >= 0 else None

    @cached_property
    def _line_offsets(self) -> list[int]:
        return sorted(self.debug.lines) if self.debug is not None else []


def has_disassembler() -> bool:
    """True if nvdisasm is found on this machine."""
    return tool_path() is not None


def listing_of(kernel: FoundKernel) -> CodeListing | None:
    """The instructions of a kernel; None without nvdisasm, if it fails, or if only ptxas's output is known.

    Raises `NcuBenchError` if a licence forbids disassembly.
    """
    if not has_disassembler():
        return None
    cubin, printed = _disassembly(replace(kernel, resources=_NO_KERNEL))
    name = kernel.resources.name
    if cubin is None:
        return None
    if printed is None:
        printed = disassembled(cubin.content, cubin.number_of(name))
    offsets = printed.offsets(name)
    texts = [text or "" for text in printed.of(name, offsets, 0)]
    return CodeListing(kernel, offsets, texts, kernel_debug(cubin.content, name)) if offsets else None


@lru_cache(maxsize=2)
def _disassembly(image: FoundKernel) -> tuple[Cubin | None, Disassembly | None]:
    """The cubin of an image and, unless it is large, all its instructions: nvdisasm takes seconds to start."""
    cubin = cubin_with(image)
    is_small = cubin is not None and len(cubin.content) <= LARGEST_AT_ONCE
    return cubin, disassembled(cubin.content) if cubin is not None and is_small else None


def needs_disassembler(what: str) -> NcuBenchError:
    """The error for a feature that needs instructions, on a machine without nvdisasm."""
    return NcuBenchError(
        f"{what} needs the text of instructions, which {TOOL} prints.",
        f"There is no {TOOL} on PATH, in CUDA_HOME or /usr/local/cuda, and no Python package triton.",
        "Install the CUDA toolkit, or: pip install triton. Registers, spills, shared memory and occupancy need none.",
    )


_REGISTER = re.compile(r"\b(U?[RPB])\d+(?![\w])")
_LABEL = re.compile(r"`\((\.L\w+|[^)]*)\)(?:\s+0x[0-9a-f]+)?")
_OWN_FUNCTION = re.compile(r"__internal_\d+_")


def normalised(text: str) -> str:
    """An instruction without what a rebuild may change: numbers of registers and predicates, and label names."""
    without_labels = _LABEL.sub(lambda label: "L" if label[1].startswith(".L") else label[1], text)
    plain = _OWN_FUNCTION.sub("", without_labels.removesuffix(";").strip())
    return _REGISTER.sub(r"\1", plain)


def line_of_kernel(kernel: FoundKernel) -> LinePlace | None:
    """The line of a kernel's first instruction; None without -lineinfo, or where a licence forbids reading it."""
    cubin = None if kernel.closed_library else cubin_with(kernel)
    debug = None if cubin is None else kernel_debug(cubin.content, kernel.resources.name)
    return debug.lines[min(debug.lines)] if debug is not None and debug.lines else None
