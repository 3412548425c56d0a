"""Tensor operations without operation counters: from opcodes, or on Volta from the instruction count.

ncu before 2023.2 does not count tensor operations. An opcode of mma.sync contains its shape: HMMA.16816.F32 multiplies
16 x 8 x 16, so a warp instruction does 2 x 16 x 8 x 16 operations. The result is exact if every tensor opcode of a
launch contains its shape, which those of wgmma and tcgen05 do not. Counts per opcode are in .ncu-rep files, and in text
written with --print-metric-instances details (ncu 2024.1 and newer).

On Volta, and only there, every tensor instruction (a step of HMMA.884) does 512 operations on fp16 inputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ncu_launch.counters.metrics import TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS

OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"
VOLTA = "7.0"
OPERATIONS_PER_VOLTA_INSTRUCTION = 512

_SHAPED = r"(?P<unit>[HIDBQ]MMA)(?P<sparse>\.SP)?\.(?P<m>16|8)(?P<n>8)(?P<k>\d+)(?P<rest>(?:\.\w+)*)"
_TENSOR = r"(?:[HIDBQO]|HG|IG|QG|BG|UTC[HIQO])MMA\b"
_NAMED = r"(?P<opcode>[A-Z][A-Z0-9_.]*)\s*:\s*(?P<count>[\d,]+)"


def operations(opcode: str) -> tuple[str, int] | None:
    """Input type and operations per warp instruction; None if the opcode does not contain its shape.

    Sparse instructions give None: whether they count the executed or the nominal operations is not confirmed.
    """
    match = re.fullmatch(_SHAPED, opcode)
    if match is None or match["sparse"]:
        return None
    precision = _precision(match["unit"], match["rest"])
    return None if precision is None else (precision, 2 * int(match["m"]) * int(match["n"]) * int(match["k"]))


def _precision(unit: str, modifiers: str) -> str | None:
    words = set(modifiers.split("."))
    if unit == "HMMA":
        return "bf16" if "BF16" in words else "tf32" if "TF32" in words else "fp16"
    if unit == "IMMA":
        return "int8" if words & {"S8", "U8"} else "int4" if words & {"S4", "U4"} else None
    return {"DMMA": "fp64", "BMMA": "int1", "QMMA": "fp8"}[unit]


def tensor_operations(executed: Mapping[str, float]) -> dict[str, float] | None:
    """Operations per input type (0 if unused) from warp instructions per opcode with modifiers.

    None if a tensor opcode does not contain its shape, because the sum would be too small.
    """
    result = dict.fromkeys((*TENSOR_FLOAT_PRECISIONS, *TENSOR_INTEGER_PRECISIONS), 0.0)
    for opcode, count in executed.items():
        if not re.match(_TENSOR, opcode):
            continue
        found = operations(opcode)
        if found is None:
            return None
        result[found[0]] += count * found[1]
    return result


def named_instances(text: str) -> dict[str, float]:
    """Parse opcode counts printed behind a metric, such as "(HMMA.16816.F32: 128; FADD: 5)"."""
    return {match["opcode"]: float(match["count"].replace(",", "")) for match in re.finditer(_NAMED, text)}
