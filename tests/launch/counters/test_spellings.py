"""Common spellings of metric names are corrected; misleading names are refused with the reason."""

from __future__ import annotations

import pytest
from ncu_launch.counters.metric_groups import corrected
from ncu_launch.errors import WrongUsage

GROUPS = ("flops", "dram", "tensor")


@pytest.mark.parametrize("written", ["sass_thread_inst_executed_op_ffma", "sm__inst_executed_op_ffma_pred_on.sum"])
def test_a_common_misspelling_becomes_the_metric_with_a_note(written: str) -> None:
    name, note = corrected(written, GROUPS)
    assert name == "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    assert note == f"{written} exists on no chip; {name} is collected instead"


@pytest.mark.parametrize("name", ["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "lts__t_bytes.sum"])
def test_a_name_that_is_right_stays_without_a_note(name: str) -> None:
    assert corrected(name, GROUPS) == (name, "")


def test_a_misleading_metric_is_refused_with_the_group_to_use() -> None:
    with pytest.raises(WrongUsage, match="an FMA once") as refused:
        corrected("smsp__sass_thread_inst_executed_op_fp32_pred_on.sum", GROUPS)
    assert refused.value.advice.startswith("Ask for the group flops instead. To collect it all the same, write =smsp__")


def test_an_equals_sign_passes_a_refused_name_on_as_it_is() -> None:
    name = "smsp__sass_thread_inst_executed_op_fp32_pred_on.sum"
    assert corrected(f"={name}", GROUPS) == (name, "")


def test_any_other_word_is_refused_with_the_nearest_group() -> None:
    with pytest.raises(WrongUsage, match="Did you mean tensor"):
        corrected("tensors", GROUPS)
