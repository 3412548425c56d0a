"""The code of kernels in a binary report: cubins, PTX, and the text of source files that ncu imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from ncu_parsers.ncu_rep.blocks import Blocks, Content, blocks_of, messages_of, opened
from ncu_parsers.ncu_rep.fields import Damaged, decoded, text_of
from ncu_parsers.sources.sources import Source

LINES = b".debug_line"
PTX_IN_CUBIN = b".nv_debug_ptx_txt"
"""Names of sections of a cubin: where its instructions come from, and the PTX that it was made of."""


@dataclass(frozen=True)
class ModuleCode:
    """The code that some launches ran.

    `reference` is what their results call it, `compute_capability` as "8.0". `cubin` is an ELF file; it is empty, as is
    `ptx`, if the report has none. `files` are texts by path, with `ncu --import-source`.
    """

    reference: int
    compute_capability: str | None
    cubin: bytes
    ptx: str
    files: dict[str, str] = field(default_factory=dict)

    @property
    def has_lines(self) -> bool:
        """Whether the cubin says which line each instruction comes from (-lineinfo)."""
        return LINES in self.cubin

    @property
    def has_ptx(self) -> bool:
        """Whether the PTX is here, or inside the cubin."""
        return bool(self.ptx) or PTX_IN_CUBIN in self.cubin


def kernel_codes(source: Source) -> Iterator[ModuleCode]:
    """The code in a binary report, one after the other; what is damaged is left out.

    Raises `NcuBenchError` if the report cannot be opened.
    """
    with opened(source) as stream:
        yield from codes_of(stream, blocks_of(stream, source.name))


def codes_of(stream: BinaryIO, blocks: Blocks) -> Iterator[ModuleCode]:
    """The code in a file whose headers were read."""
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
