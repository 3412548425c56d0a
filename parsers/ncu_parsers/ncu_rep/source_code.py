"""The code of kernels in a binary report: cubins, PTX, and texts of imported source files and of instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ncu_parsers.ncu_rep.blocks import Blocks, Content, blocks_of, messages_of, opened
from ncu_parsers.ncu_rep.encoded_values import values_of
from ncu_parsers.ncu_rep.fields import Damaged, decoded, text_of
from ncu_parsers.ncu_rep.results import Result
from ncu_parsers.sources.sources import Source

if TYPE_CHECKING:
    from ncu_parsers.ncu_rep.sass.kernel_text import KernelText

LINES = b".debug_line"
PTX_IN_CUBIN = b".nv_debug_ptx_txt"
"""Sections of a cubin: the lines of its instructions, and its PTX."""
FIRST_ADDRESSES = "launch__function_pcs"
"""The metric whose instances are the addresses of a kernel's functions, the kernel itself first."""


@dataclass(frozen=True)
class ModuleCode:
    """A module: code that some launches ran.

    `reference` identifies it in their results; `compute_capability` is like "8.0", None if not recorded. `cubin` is an
    ELF file, empty if the report has none or stores it with an earlier module; `ptx` is empty if the report has none.
    `files` are source texts by path, collected with `ncu --import-source`.
    """

    reference: int
    compute_capability: str | None
    cubin: bytes
    ptx: str
    files: dict[str, str] = field(default_factory=dict)

    @property
    def has_lines(self) -> bool:
        """True if the cubin has the source line of each instruction (-lineinfo)."""
        return LINES in self.cubin

    @property
    def has_ptx(self) -> bool:
        """True if the report has the PTX, of its own or inside the cubin."""
        return bool(self.ptx) or PTX_IN_CUBIN in self.cubin


def code_in(source: Source) -> list[ModuleCode]:
    """The code of all kernels in a binary report, without damaged code.

    Raises `NcuBenchError` if the report cannot be opened.
    """
    with opened(source) as stream:
        return list(codes_of(stream, blocks_of(stream, source.name)))


def codes_of(stream: BinaryIO, blocks: Blocks) -> Iterator[ModuleCode]:
    """The code in a file whose headers were read; damaged code, and code beyond the memory limit, is left out."""
    for block in blocks.blocks:
        try:
            for message in messages_of(stream, block, Content.SOURCE):
                if message.data is not None:
                    yield _code(message.data)
        except Damaged:
            continue


def _code(data: bytes) -> ModuleCode:
    source = decoded("Source", data)
    return ModuleCode(
        source.reference,
        f"{source.sm_revision >> 16}.{source.sm_revision & 0xFFFF}" if source.HasField("sm_revision") else None,
        source.cubin,
        text_of(source.ptx),
        {text_of(file.path): text_of(file.content) for file in source.files.files if file.HasField("content")},
    )


class InstructionTexts:
    """The disassembly of a report's kernels, as far as it is available."""

    def __init__(self, stream: BinaryIO, blocks: Blocks) -> None:
        self._stream, self._blocks = stream, blocks
        self._cubins: dict[int, bytes] = {}

    @cached_property
    def _texts(self) -> KernelText:
        """The disassembler, imported on first use, since few reports need it."""
        from ncu_parsers.ncu_rep.sass.kernel_text import KernelText

        return KernelText(Path(self._stream.name))

    def of(self, result: Result, addresses: Sequence[int], first: int | None) -> list[str | None]:
        """SASS text at each address of a launch whose kernel begins at the address `first`; None where unknown."""
        return self._texts.of(mangled_name(result), addresses, first, lambda: self._cubin(result))

    def _cubin(self, result: Result) -> bytes:
        """The cubin of a launch. It is stored once and empty when repeated; the last one is kept."""
        wanted = result.message.source.reference
        if wanted not in self._cubins:
            codes = codes_of(self._stream, self._blocks)
            cubin = next((code.cubin for code in codes if code.reference == wanted and code.cubin), b"")
            self._cubins = {wanted: cubin}
        return self._cubins[wanted]


def mangled_name(result: Result) -> str:
    """The name of a launch's kernel in its cubin."""
    return text_of(result.message.mangled or result.message.function)


def first_address(result: Result, blocks: Blocks, at_most: int) -> int | None:
    """The address of the kernel's first instruction, at most `at_most`; None if the report has none."""
    names, codes = blocks.names.texts, blocks.names.codes
    for metric in result.message.metrics:
        if metric.name < len(codes) and names[codes[metric.name]] == FIRST_ADDRESSES and len(metric.instances):
            first = values_of([metric.instances[0].key, metric.instances[0].value])
            for place in (0, 1):
                if first.is_whole[place] and 0 < first.whole[place] <= at_most:
                    return int(first.whole[place])
    return None
