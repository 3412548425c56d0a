"""Tensor operations without operation counters: from opcodes, or on Volta from the instruction count.

ncu before 2023.2 does not count tensor operations. An opcode of mma.sync contains its shape: HMMA.16816.F32 multiplies
16 x 8 x 16, so a warp instruction does 2 x 16 x 8 x 16 operations. An opcode of wgmma does too: HGMMA.64x128x16.F32 is
the product of a group of four warps, each of which executes it, so a warp instruction does a quarter of it.
Instructions and input types that were never compared with counters are marked as estimates. Opcodes of tcgen05
(UTCHMMA) do not contain their shape.

On Volta, and only there, every tensor instruction (a step of HMMA.884) does 512 operations on fp16 inputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ncu_launch.counters.metrics import TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS

VOLTA = "7.0"
OPERATIONS_PER_VOLTA_INSTRUCTION = 512
WARPS_OF_A_GROUP = 4
CHECKED = frozenset(
    {
        ("HMMA", "fp16"), ("HMMA", "bf16"), ("IMMA", "int8"), ("DMMA", "fp64"),
        ("HGMMA", "fp16"), ("HGMMA", "bf16"), ("HGMMA", "tf32"), ("QGMMA", "fp8"),
    }
)  # fmt: skip
"""Instructions and input types whose operations by shape were checked. In matrix products, convolutions and attention
on an H100 they equal the operation counters exactly (docs/dev/gpu-validation.md); HMMA agreed with the tensor pipe of
an A40."""

_SHAPED = r"(?P<unit>[HIDBQO]MMA)(?P<sparse>\.SP)?(?:\.SF)?\.(?P<m>16|8)x?(?P<n>8)x?(?P<k>\d+)(?P<rest>(?:\.\w+)*)"
_OF_A_GROUP = r"(?P<unit>[HIQB]GMMA)(?P<sparse>\.SP)?\.(?P<m>64)x(?P<n>\d+)x(?P<k>\d+)(?P<rest>(?:\.\w+)*)"
_TENSOR = r"(?:[HIDBQO]|HG|IG|QG|BG|UTC[HIQO])MMA\b"
_FP8, _FP6, _FP4 = {"E4M3", "E5M2"}, {"E3M2", "E2M3"}, {"E2M1"}


class WarpOperations(NamedTuple):
    """Operations of one warp instruction on inputs of a type; `checked` if they were compared with counters."""

    precision: str
    amount: int
    checked: bool


class TensorOperations(NamedTuple):
    """Operations of a launch per input type (0 if unused); `unchecked` if an opcode was not compared with counters."""

    amounts: dict[str, float]
    unchecked: bool


def operations(opcode: str) -> WarpOperations | None:
    """The operations of a warp instruction with this opcode; None if the opcode does not contain its shape.

    Sparse instructions give None: it is not confirmed whether they count executed or nominal operations.
    """
    of_a_group = re.fullmatch(_OF_A_GROUP, opcode)
    match = of_a_group or re.fullmatch(_SHAPED, opcode)
    if match is None or match["sparse"]:
        return None
    precision = _precision(match["unit"], set(match["rest"].split(".")))
    if precision is None:
        return None
    whole = 2 * int(match["m"]) * int(match["n"]) * int(match["k"])
    amount = whole // WARPS_OF_A_GROUP if of_a_group else whole
    return WarpOperations(precision, amount, (match["unit"], precision) in CHECKED)


def _precision(unit: str, words: set[str]) -> str | None:
    """The input type; None for IMMA or QMMA without a type name.

    Mixed inputs of QMMA run at the wider type's rate and count as that type.
    """
    kind = unit[0]
    if kind == "H":
        return "bf16" if "BF16" in words else "tf32" if "TF32" in words else "fp16"
    if kind == "I":
        return "int8" if words & {"S8", "U8"} else "int4" if words & {"S4", "U4"} else None
    if kind == "Q":
        return "fp8" if words & _FP8 else "fp6" if words & (_FP6 | _FP4) else None
    return {"D": "fp64", "B": "int1", "O": "fp4"}[kind]


def is_tensor_opcode(opcode: str) -> bool:
    """True for an instruction of the tensor cores."""
    return re.match(_TENSOR, opcode) is not None


def tensor_operations(executed: Mapping[str, float]) -> TensorOperations | None:
    """Operations per input type from warp instructions per opcode with modifiers.

    None if a tensor opcode does not contain its shape, because the sum would be too small.
    """
    amounts = dict.fromkeys((*TENSOR_FLOAT_PRECISIONS, *TENSOR_INTEGER_PRECISIONS), 0.0)
    unchecked = False
    for opcode, count in executed.items():
        if not is_tensor_opcode(opcode):
            continue
        found = operations(opcode)
        if found is None:
            return None
        amounts[found.precision] += count * found.amount
        unchecked |= not found.checked and count > 0
    return TensorOperations(amounts, unchecked)
