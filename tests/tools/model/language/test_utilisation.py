"""MFU and MBU: shares of named peaks by the least work, with what they are of in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.language.step_work import StepWork
from ncu_tools.model.language.utilisation import utilisation

WORK = StepWork(
    tokens=4, flops=3e9, causal_flops=2e9, weight_bytes=1e6, cache_read_bytes=4e5, cache_written_bytes=1e5,
    activation_bytes=5e5,
)  # fmt: skip


def test_shares_are_of_the_causal_flops_and_of_the_bytes_as_read() -> None:
    used = utilisation(WORK, 1e6, find_machine("a100-sxm4-40gb"), "tensor_bf16")
    assert used.mfu == pytest.approx(2e9 / 1e-3 / 312e12)
    assert used.mbu == pytest.approx(2e6 / 1e-3 / 1.555e12)
    assert used.of_the_roof == used.mfu
    assert (
        used.said == "on a100-sxm4-40gb MFU is of 312 TFLOP/s (tensor BF16, data sheet, dense) and MBU is of 1555 GB/s"
    )


def test_the_peak_is_the_dense_one_where_the_machine_has_a_sparse_one_too() -> None:
    machine = find_machine("l4")
    assert machine.rates["tensor_fp16"].value == 121e12
    assert utilisation(WORK, 1e6, machine, "tensor_fp16").mfu == pytest.approx(2e9 / 1e-3 / 121e12)


def test_a_machine_without_a_peak_of_the_type_has_no_mfu_and_no_share_of_the_roof() -> None:
    machine = replace(find_machine("l4"), rates={"dram": find_machine("l4").rates["dram"]})
    used = utilisation(WORK, 1e6, machine, "tensor_bf16")
    assert (used.mfu, used.of_the_roof) == (None, None)
    assert used.mbu is not None
    assert used.said == "on l4 MBU is of 300 GB/s"


def test_a_measured_machine_says_so() -> None:
    machine = replace(find_machine("l4"), measured=True)
    assert "(FP32, measured)" in utilisation(WORK, 1e6, machine, "fp32").said
