"""The source page of one generated kernel: the maximum of each row of a matrix, a block per row.

Its instructions are written by hand. Counts follow from the sizes: 4,096 blocks of 8 warps, 32 steps per thread. The
samples are invented, with the places and stall reasons that are typical of such a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

KERNEL = "void row_max<(int)256>(const float *, float *, int)"
FILE = "/home/user/src/row_max.cu"
ADDRESS = 0x7F3A5E200000
WARPS = 4096 * 8
STEPS = 32
STALLS = (
    "barrier", "dispatch", "drain", "imc", "lg", "long_sb", "math", "membar", "mio", "misc", "no_inst", "not_selected",
    "selected", "short_sb", "sleep", "tex", "wait",
)  # fmt: skip
TITLES = (
    "Warp Stall Sampling (All Cycles)", "Warp Stall Sampling (Not-issued Cycles)", "Instructions Executed",
    "Thread Instructions Executed", "Predicated-On Thread Instructions Executed", "Avg. Threads Executed",
    "Address Space", "Access Operation", "Access Size", "L2 Theoretical Sectors Global",
    "L2 Theoretical Sectors Global Ideal", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal",
)  # fmt: skip


class Line(NamedTuple):
    """An instruction: its source line, text, executions per warp, samples by stall, and what it accesses."""

    line: int
    text: str
    times: float
    samples: dict[str, int]
    access: tuple[str, str, int] | None = None


LINES = (
    Line(9, "      MOV R1, c[0x0][0x28] ", 1, {"no_inst": 41, "selected": 12}),
    Line(11, "      S2R R0, SR_TID.X ", 1, {"imc": 18, "selected": 9}),
    Line(11, "      S2R R7, SR_CTAID.X ", 1, {"wait": 10, "selected": 8}),
    Line(12, "      IMAD R2, R7, c[0x0][0x170], R0 ", 1, {"short_sb": 64, "selected": 9}),
    Line(12, "      IMAD.MOV.U32 R3, RZ, RZ, 0x4 ", 1, {"selected": 8}),
    Line(12, "      IMAD.WIDE R2, R2, R3, c[0x0][0x160] ", 1, {"wait": 12, "selected": 9}),
    Line(13, "      MOV R6, 0xff800000 ", 1, {"selected": 8}),
    Line(14, "      LDG.E R4, [R2.64] ", STEPS, {"lg": 212, "selected": 270}, ("Global", "Load", 32)),
    Line(14, "      IADD3 R2, P0, R2, 0x400, RZ ", STEPS, {"wait": 96, "selected": 255}),
    Line(14, "      FMNMX R6, R4, R6, !PT ", STEPS, {"long_sb": 9120, "selected": 262}),
    Line(14, "      IADD3 R0, R0, 0x100, RZ ", STEPS, {"wait": 60, "selected": 258}),
    Line(14, "      ISETP.GE.AND P1, PT, R0, c[0x0][0x170], PT ", STEPS, {"wait": 77, "selected": 249}),
    Line(14, "@!P1  BRA 0x7f3a5e200070 ", STEPS, {"wait": 301, "selected": 251}),
    Line(16, "      S2R R5, SR_TID.X ", 1, {"selected": 8}),
    Line(16, "      STS [R5.X4], R6 ", 1, {"short_sb": 55, "mio": 31, "selected": 9}, ("Shared", "Store", 32)),
    Line(17, "      BAR.SYNC 0x0 ", 1, {"selected": 9}),
    Line(19, "      LDS R8, [R5.X4+0x200] ", 1, {"barrier": 980, "selected": 8}, ("Shared", "Load", 32)),
    Line(19, "      FMNMX R6, R6, R8, !PT ", 1, {"short_sb": 143, "selected": 8}),
    Line(21, "@!P0  EXIT ", 1, {"wait": 9, "selected": 8}),
    Line(22, "      STG.E [R10.64], R6 ", 0.125, {"lg": 3, "selected": 1}, ("Global", "Store", 32)),
    Line(22, "      EXIT ", 0.125, {"drain": 37, "selected": 1}),
)


def source_rows() -> Iterator[list[str]]:
    """The rows of `--page source --print-source cuda,sass --csv`, as ncu 2022.3 lays them out."""
    yield ["File Path", FILE]
    yield ["Function Name", KERNEL]
    behind = [*(f"stall_{one}" for one in STALLS), *(f"stall_{one} (Not Issued)" for one in STALLS)]
    yield ["Line No", "Source", "Address", "Source", *TITLES, *behind, "smsp__pcsamp_sample_count"]
    for number in dict.fromkeys(line.line for line in LINES):
        members = [(place, line) for place, line in enumerate(LINES) if line.line == number]
        counted = [_counts(line) for _, line in members]
        sums = [str(sum(column)) for column in zip(*counted, strict=True)]
        yield [str(number), "<Unable to open source file>", "-", "-", *_laid_out(sums, None)]
        for (place, line), counts in zip(members, counted, strict=True):
            address = f"{ADDRESS + 16 * place:#x}"
            yield ["", "", address, line.text, *_laid_out([*map(str, counts)], line.access)]


def _counts(line: Line) -> list[int]:
    """An instruction's share in its line's counts: samples, executions, accesses, then samples by stall."""
    samples = sum(line.samples.values())
    not_issued = {stall: count * 3 // 4 for stall, count in line.samples.items() if stall != "selected"}
    executed = int(WARPS * line.times)
    space = line.access[0] if line.access else ""
    sectors = 4 * executed if space == "Global" else 0
    wavefronts = executed if space == "Shared" else 0
    return [
        samples, sum(not_issued.values()), executed, 32 * executed, 32 * executed, 32,
        sectors, sectors, wavefronts, wavefronts,
        *(line.samples.get(stall, 0) for stall in STALLS), *(not_issued.get(stall, 0) for stall in STALLS), samples,
    ]  # fmt: skip


def _laid_out(counts: list[str], access: tuple[str, str, int] | None) -> list[str]:
    return [*counts[:6], *(map(str, access) if access else ("-", "-", "-")), *counts[6:]]
