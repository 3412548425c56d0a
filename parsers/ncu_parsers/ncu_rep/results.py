"""Iterate over the results of kernels, ranges and graphs in a report, and count what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from ncu_parsers.ncu_rep.blocks import Block, Blocks, Content, Message, messages_of
from ncu_parsers.ncu_rep.fields import Damaged, decoded, is_compiled
from ncu_parsers.sources import memory

MOST_METRICS, MOST_OTHERS = 100_000, 10_000
"""Most metrics, and most sections, rules or NVTX ranges, of a launch; one with more counts as damaged (forged)."""

NOT_COMPILED = (
    "read by the Python implementation of protobuf, many times slower than its C extension: most likely there is no "
    "wheel of protobuf for this platform, or PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION is set"
)


class Result(NamedTuple):
    """One decoded launch, range or graph, its number over all processes, its block and its size in bytes."""

    message: Any
    content: Content
    number: int
    block: Block
    size: int


@dataclass
class Lost:
    """Numbers of results and values that could not be decoded, of results too long for the memory limit, and of values
    whose metric has no name in the file. `untold` launches would need a disassembly for their opcodes."""

    results: int = 0
    too_long: int = 0
    values: int = 0
    nameless: int = 0
    untold: int = 0

    def notes(self) -> list[str]:
        """One note for each kind of loss, and one if reading is slow."""
        notes = []
        if self.results:
            launches = "1 damaged launch was" if self.results == 1 else f"{self.results} damaged launches were"
            notes.append(f"{launches} left out; later ones keep their launch ids")
        if self.too_long:
            notes.append(
                f"left out because each takes more than {memory.longest_message() // 10**6} MB in the file: "
                f"{self.too_long} launches; give more memory with {memory.OPTION}"
            )
        if self.values:
            notes.append(f"left out because they are damaged: {self.values} values")
        if self.nameless:
            notes.append(f"left out because the names of their metrics are not in the file: {self.nameless} values")
        if self.untold:
            launches = "1 launch has" if self.untold == 1 else f"{self.untold} launches have"
            notes.append(
                f"{launches} counts per instruction and none per opcode, and the text of instructions is "
                "not known here, so that only counters tell their FLOPs: pip install '.[ncu-rep]', or put "
                "nvdisasm (of the CUDA toolkit) on PATH"
            )
        if not is_compiled():
            notes.append(NOT_COMPILED)
        return notes


def results_of(stream: BinaryIO, blocks: Blocks, lost: Lost) -> Iterator[Result]:
    """The results of a file, numbered as ncu does: process by process, from 0.

    Damaged and too long ones are counted in `lost`; a block that ends early sets `blocks.is_cut`.
    """
    number = 0
    for block in blocks.of_processes():
        try:
            for message in messages_of(stream, block, Content.KERNEL, Content.RANGE, Content.GRAPH):
                result = _decoded(message, number, lost)
                number += 1
                if result is not None:
                    yield result
        except Damaged:
            blocks.is_cut = True


def _decoded(message: Message, number: int, lost: Lost) -> Result | None:
    if message.data is None:
        lost.too_long += 1
        return None
    try:
        decoded_message = decoded(message.content.value, message.data)
    except Damaged:
        lost.results += 1
        return None
    if _has_too_many(decoded_message):
        lost.results += 1
        return None
    return Result(decoded_message, message.content, number, message.block, len(message.data))


def _has_too_many(result: Any) -> bool:
    nvtx = result.nvtx
    lists = [result.sections, result.rules, nvtx.domains, nvtx.threads, nvtx.started]
    if len(result.metrics) > MOST_METRICS or any(len(some) > MOST_OTHERS for some in lists):
        return True
    pushed = [thread.domains for thread in nvtx.threads]
    inner = [*(rule.body.items for rule in result.rules), *(section.sets for section in result.sections), *pushed]
    if sum(map(len, inner)) > MOST_OTHERS:
        return True
    ranges = [one.ranges for one in (*nvtx.started, *(domain for domains in pushed for domain in domains))]
    focus = (item.focus for rule in result.rules for item in rule.body.items)
    return sum(map(len, ranges)) + sum(map(len, focus)) > MOST_OTHERS
