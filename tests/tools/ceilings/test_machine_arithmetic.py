"""The peaks of NVIDIA's boards are operations per SM and cycle x SMs x clock, those of the counters and whitepapers.

Operations per SM and cycle agree with the peaks of the counters in research/ncu-metrics.md wherever that has the chip.
Printed values are rounded, and so agree within 1.5 per cent.
"""

from __future__ import annotations

import pytest

from ncu_tools.ceilings.machine_files import Machine, Rate, machines

TURING = {"fp64": 4, "fp32": 128, "fp16": 256, "tensor_int8": 2048, "tensor_int4": 4096}
NEWER = {"fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256, "tensor_int8": 2048, "tensor_int4": 4096}
FULL = {"tensor_tf32": 512, "tensor_bf16": 1024, "tensor_fp16": 1024, "tensor_fp8": 2048, "tensor_fp4": 4096}
HALF = {"tensor_tf32": 256, "tensor_bf16": 512, "tensor_fp16": 512, "tensor_fp8": 1024, "tensor_fp4": 4096}
"""Tensor cores of professional boards, and of GeForce boards, which accumulate in FP32 at half the rate."""

PER_SM = {
    "6.0": {"fp64": 64, "fp32": 128, "fp16": 256},
    "7.0": {"fp64": 64, "fp32": 128, "fp16": 256, "tensor_fp16": 1024},
    "7.5": {**TURING, "tensor_fp16": 1024},
    "8.0": {
        "fp64": 64, "fp32": 128, "fp16": 512, "bf16": 256, "tensor_fp64": 128, "tensor_tf32": 1024, "tensor_bf16": 2048,
        "tensor_fp16": 2048, "tensor_int8": 4096, "tensor_int4": 8192, "tensor_int1": 32768,
    },
    "8.6": {**NEWER, **FULL},
    "8.9": {**NEWER, **FULL},
    "9.0": {
        "fp64": 128, "fp32": 256, "fp16": 512, "bf16": 512, "tensor_fp64": 256, "tensor_tf32": 2048,
        "tensor_bf16": 4096, "tensor_fp16": 4096, "tensor_fp8": 8192, "tensor_int8": 8192,
    },
    "12.0": {**NEWER, **FULL},
}  # fmt: skip
"""Compute capability -> unit -> operations per SM and cycle, of boards that are no GeForce."""

OF_BOARD = {
    "a10g": {"tensor_tf32": 256, "tensor_bf16": 512, "tensor_fp16": 512, "tensor_int8": 1024, "tensor_int4": 2048},
    "l40": {
        "tensor_tf32": 256, "tensor_bf16": 512, "tensor_fp16": 512, "tensor_fp8": 1024, "tensor_int8": 1024,
        "tensor_int4": 2048,
    },
    "l40s": {"tensor_int4": 2048},
}  # fmt: skip
"""Rates per SM and cycle that NVIDIA prints for a single board."""

NOT_COMPUTED = {
    ("h800-sxm", "fp64"): "cut by NVIDIA to about 1 TFLOP/s",
}
WITHOUT_CLOCK = {
    "b200": "no clock is printed",
    "b300": "no clock is printed",
    "gb200": "no clock is printed",
    "gb300": "no clock is printed",
    "gb10": "no clock is printed",
    "rtx-pro-6000-blackwell-server": "no clock is printed",
}

BOARDS = [machine for machine in machines().values() if machine.compute_capability and not machine.measured]


def per_sm(machine: Machine) -> dict[str, int]:
    """The operations per SM and cycle of a board's units."""
    rates = PER_SM[machine.compute_capability or ""]
    if "GeForce" in machine.name:
        rates = {**rates, **(HALF if machine.compute_capability != "7.5" else {"tensor_fp16": 512})}
    return {**rates, **OF_BOARD.get(machine.id, {})}


def peaks() -> dict[tuple[str, str], tuple[Machine, Rate]]:
    return {(machine.id, rate.unit): (machine, rate) for machine in BOARDS for rate in machine.peaks}


def test_every_peak_is_operations_per_sm_and_cycle_times_sms_times_clock() -> None:
    assert {machine.id for machine in BOARDS if not machine.boost_clock_hz} == WITHOUT_CLOCK.keys()
    held = {
        name: (machine, rate)
        for name, (machine, rate) in peaks().items()
        if machine.boost_clock_hz and name not in NOT_COMPUTED
    }
    computed = {
        name: per_sm(machine)[rate.unit] * (machine.sm_count or 0) * (rate.clock_hz or machine.boost_clock_hz or 0.0)
        for name, (machine, rate) in held.items()
    }
    assert {name: rate.value for name, (_, rate) in held.items()} == pytest.approx(computed, rel=0.015)


def test_fp32_is_two_flops_per_lane_and_cycle() -> None:
    lanes = {"6.0": 64, "7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.9": 128, "9.0": 128, "12.0": 128}
    assert {capability: rates["fp32"] for capability, rates in PER_SM.items()} == {
        capability: 2 * of_sm for capability, of_sm in lanes.items()
    }


def test_sparse_rates_are_twice_the_dense_ones_and_mma_sync_two_thirds_of_wgmma() -> None:
    for name, (_, rate) in peaks().items():
        assert rate.sparse is None or rate.sparse == pytest.approx(2 * rate.value, rel=0.015), name
        assert rate.mma_sync is None or rate.mma_sync == pytest.approx(2 / 3 * rate.value, rel=0.015), name


def test_exceptions_are_machines() -> None:
    named = {*WITHOUT_CLOCK, *OF_BOARD, *(machine_id for machine_id, _ in NOT_COMPUTED)}
    assert named <= {machine.id for machine in BOARDS}


def test_only_tensor_peaks_of_hopper_assume_a_clock_of_their_own() -> None:
    apart = {(board.compute_capability, rate.unit) for board in BOARDS for rate in board.peaks if rate.clock_hz}
    assert {capability for capability, _ in apart} == {"9.0"}
    assert all(unit.startswith("tensor_") and unit != "tensor_fp64" for _, unit in apart)
