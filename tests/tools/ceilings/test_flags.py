"""Why a kernel may be above a ceiling: evidence before suspicion, and always a sentence with its numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.ceilings.above_ceiling import Excess, flag
from ncu_tools.ceilings.ceilings import DATA_SHEET, OWN, OWN_BOARD, Origin

SHEET = Origin(DATA_SHEET, "machine file x", clock_hz=1.41e9)
CHOSEN = SHEET._replace(says="--machine x", chosen=True)
DRAM = Excess("dram", 1.2, OWN, device="GPU", bytes_of_a_launch=1e9)
BF16 = Excess("tensor_bf16", 1.5, OWN, device="GPU", has_sparsity=True)
FP32 = Excess("fp32", 1.2, SHEET, device="GPU")


@given(st.floats(0, 1.01))
def test_up_to_101_per_cent_is_not_flagged(fraction: float) -> None:
    assert flag(DRAM._replace(fraction=fraction)) is None


def test_a_flag_names_the_percentage_the_unit_and_the_source_of_the_ceiling() -> None:
    assert (flag(FP32) or "").startswith("120.0 % of the FP32 ceiling (machine file x): ")


@pytest.mark.parametrize(
    ("excess", "says"),
    [
        (DRAM._replace(from_operators=True), "inputs, weights and outputs of operators"),
        (BF16._replace(sparse_share=0.75), "75.0 % of its operations took the sparse path"),
        (BF16._replace(sparse_share=0.75, fraction=2.02), "75.0 % of its operations took the sparse path"),
        (FP32._replace(origin=CHOSEN), "the wrong machine; the report names GPU"),
        (FP32._replace(origin=CHOSEN, device=None), "the wrong machine; the report names no device"),
        (FP32._replace(sm_clock_hz=1.75e9), "the SM clock was 1.75 GHz, and the ceiling assumes 1.41 GHz"),
        (FP32._replace(fraction=1.25, sm_clock_hz=1.75e9), "the SM clock was 1.75 GHz"),
        (FP32._replace(fraction=2.02, sm_clock_hz=2.82e9), "the SM clock was 2.82 GHz"),
        (FP32._replace(origin=OWN, sm_clock_hz=1.75e9), "operations and time come from different passes"),
        (DRAM._replace(bytes_of_a_launch=12e6, l2_size=40e6), "its 12 MB fit in the 40 MB of L2"),
        (DRAM._replace(bytes_of_a_launch=40e6, l2_size=40e6), "its 40 MB fit in the 40 MB of L2"),
        (FP32._replace(fraction=2.5), "more than twice a data sheet's value; probably the wrong machine"),
        (BF16, "perhaps the sparse path"),
        (BF16._replace(fraction=2.02), "perhaps the sparse path"),
        (FP32._replace(from_shapes=True), "its FLOPs follow from shapes"),
        (FP32, "a higher clock than the 1.41 GHz it assumes, or the wrong machine"),
        (DRAM._replace(origin=SHEET), "a higher memory clock than the data sheet's"),
        (DRAM, "in the timed one data was probably in L2"),
        (DRAM._replace(bytes_of_a_launch=None, l2_size=40e6), "in the timed one data was probably in L2"),
        (DRAM._replace(origin=OWN_BOARD), "in the timed one data was probably in L2"),
        (
            FP32._replace(origin=Origin("measured quickly", "x")),
            "measured quickly and reads low; ncu-bench machines measure",
        ),
        (FP32._replace(origin=Origin("measured", "x")), "the best that was measured, and this did better"),
        (FP32._replace(origin=OWN), "operations and time come from different passes"),
    ],
)
def test_the_likely_reason_follows_from_the_evidence(excess: Excess, says: str) -> None:
    assert says in (flag(excess) or "")


@pytest.mark.parametrize(
    ("excess", "does_not_say"),
    [
        (BF16._replace(sparse_share=0.0), "sparse"),
        (BF16._replace(fraction=2.5), "sparse"),
        (BF16._replace(has_sparsity=False), "sparse"),
        (FP32._replace(has_sparsity=True), "sparse"),
        (BF16._replace(sparse_share=0.75, fraction=2.03), "sparse"),
        (FP32._replace(fraction=2.02), "more than twice"),
        (FP32._replace(bytes_of_a_launch=12e6, l2_size=40e6), "fit"),
        (DRAM._replace(from_shapes=True), "shapes"),
        (DRAM._replace(bytes_of_a_launch=80e6, l2_size=40e6), "fit"),
        (FP32._replace(fraction=1.9, sm_clock_hz=1.5e9), "SM clock was"),
        (FP32._replace(sm_clock_hz=1.1e9), "SM clock was"),
        (DRAM._replace(origin=SHEET, sm_clock_hz=1.75e9), "SM clock"),
    ],
)
def test_an_impossible_reason_is_not_given(excess: Excess, does_not_say: str) -> None:
    found = flag(excess)
    assert found is not None
    assert does_not_say not in found
