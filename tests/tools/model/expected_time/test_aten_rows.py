"""Rows of ATen operators: the product, attention or bytes behind a name and its shapes, and why others have none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.aten_rows import AtenWork, arguments_in, aten_work, name_of
from ncu_tools.model.expected_time.expected_times import ExpectedTimes, expected_times
from ncu_tools.model.expected_time.learnt_times import shipped
from ncu_tools.model.expected_time.operator_rows import operator_rows


def work(op: str, shapes: object, dtype: str = "bf16", **settings: str) -> AtenWork:
    found = aten_work(op, dtype, shapes, settings)
    assert isinstance(found, AtenWork), found
    return found


def times(machine: str = "h100-sxm", **columns: list[object]) -> ExpectedTimes:
    return expected_times(operator_rows(columns), find_machine(machine), shipped())


@pytest.mark.parametrize(
    ("written", "name"),
    [("mm", "aten::mm"), ("aten::mm", "aten::mm"), ("aten.mm.default", "aten::mm"), ("_C::rms_norm", "_C::rms_norm")],
)
def test_a_name_is_found_however_it_is_written(written: str, name: str) -> None:
    assert name_of(written) == name


@pytest.mark.parametrize(
    ("shapes", "found"),
    [
        ("4x5 5x6", [(4, 5), (5, 6)]),
        ("4x5 - 5", [(4, 5), (), (5,)]),
        ("[[4,5],[],[5]]", [(4, 5), (), (5,)]),
        ([[4, 5], []], [(4, 5), ()]),
        ("[[[2,3],[4,3]],[]]", [(2, 3), (4, 3), ()]),
        ("4x", []),
        ("[1", []),
        ("[[-1]]", []),
        ("4x0", []),
        (None, []),
    ],
)
def test_shapes_are_read_as_the_collector_and_as_traces_write_them(shapes: object, found: list[object]) -> None:
    assert arguments_in(shapes) == found


class TestTheWork:
    def test_of_a_batch_of_products_is_a_number_of_them(self) -> None:
        assert work("aten::bmm", "3x8x4 3x4x2").sizes == {"m": 8, "n": 2, "k": 4, "number": 3, "distinct": 1.0}

    def test_of_a_convolution_follows_from_its_stride_and_padding(self) -> None:
        found = work("aten::conv2d", "32x3x224x224 64x3x7x7", stride="2", padding="3").sizes
        assert (found["m"], found["n"], found["k"]) == (32 * 112 * 112, 64, 147)
        assert found["distinct"] == pytest.approx(224 * 224 / (112 * 112 * 49))

    def test_of_attention_has_no_causal_mask_unless_it_is_said(self) -> None:
        flash = "aten::_scaled_dot_product_flash_attention"
        shapes = "4x32x128x64 4x8x256x64 4x8x256x64"
        assert work(flash, shapes).sizes["causal"] == 0
        found = work(flash, shapes, causal="true")
        assert found.kind == "attention_context"
        assert found.sizes | {"batch": 4, "heads": 32, "kv_heads": 8, "query": 128, "context": 128} == found.sizes

    def test_of_attention_for_one_token_is_generation(self) -> None:
        assert work("aten::_flash_attention_forward", "[[4,1,8,64],[4,99,8,64],[4,99,8,64]]").kind == (
            "attention_generation"
        )

    def test_of_elementwise_operators_is_their_bytes(self) -> None:
        assert work("aten::add", "100x10 100x10").sizes == {"moved": 3 * 2000, "rearranges": 0.0}
        assert work("aten::add", "100x10 100x1").sizes["rearranges"] == 1.0

    @pytest.mark.parametrize("name", ["aten::native_layer_norm", "aten::layer_norm"])
    def test_of_a_normalisation_is_what_it_reads_and_writes(self, name: str) -> None:
        assert work(name, "100x64 - 64 64").sizes["moved"] > 2 * 2 * 6400

    @pytest.mark.parametrize(
        ("op", "shapes", "reason"),
        [
            ("aten::no_such_thing", "4x4", "no formula of aten::no_such_thing is known"),
            ("aten::mm", "4x4 5x5", "the shapes of aten::mm do not tell its work"),
            ("aten::mm", "", "the shapes of aten::mm are missing"),
            ("aten::mm", "4xb", "shapes 4xb cannot be read"),
            ("aten::conv2d", "1x3x8x8 4x3x3", "the image and the weights of aten::conv2d do not fit each other"),
            ("aten::_scaled_dot_product_flash_attention", "4x4 4x4 4x4", "are not those of queries, keys and values"),
        ],
    )  # fmt: skip
    def test_that_is_not_known_has_a_reason(self, op: str, shapes: str, reason: str) -> None:
        assert reason in str(aten_work(op, "bf16", shapes, {}))

    @given(
        st.sampled_from(["mm", "conv2d", "add", "cat", "layer_norm", "_scaled_dot_product_flash_attention", "x"]),
        st.one_of(
            st.text("0123456789x -[],", max_size=30), st.lists(st.lists(st.integers(-2, 9), max_size=4), max_size=4)
        ),
    )
    def test_of_odd_shapes_is_a_reason_and_no_error(self, op: str, shapes: object) -> None:
        found = aten_work(f"aten::{op}", "bf16", shapes, {})
        assert isinstance(found, str) or all(np.isfinite(value) for value in found.sizes.values())


class TestTimes:
    def test_of_a_product_by_its_name_are_those_of_the_gemm(self) -> None:
        found = times(op=["gemm", "aten::mm"], dtype=["bf16"] * 2, m=["64", ""], n=["32", ""], k=["96", ""],
                      shapes=["", "64x96 96x32"])  # fmt: skip
        assert found.expected_us[0] == found.expected_us[1]

    def test_of_a_scaled_product_are_without_turning_its_activations(self) -> None:
        found = times(op=["gemm", "gemm", "aten::_scaled_mm"], dtype=["fp8"] * 3, m=["4096", "4096", ""],
                      n=["512", "512", ""], k=["4096", "4096", ""], quantised=["1", "0", ""],
                      shapes=["", "", "4096x4096 4096x512"])  # fmt: skip
        assert found.expected_us[2] == found.expected_us[0] < found.expected_us[1]

    @pytest.mark.parametrize(
        ("machine", "dtype", "measured"), [("t4", "fp16", 1233), ("t4", "fp32", 6008), ("v100-sxm2-16gb", "fp32", 1491)]
    )
    def test_of_a_convolution_lie_in_a_wider_interval_than_of_its_product(
        self, machine: str, dtype: str, measured: float
    ) -> None:
        # us of DeepBench, 64 filters of 3 x 3 over 64 channels: in FP32 by Winograd's way
        found = times(machine, op=["aten::conv2d", "gemm"], dtype=[dtype] * 2, padding=["1", ""],
                      shapes=["16x64x80x350 64x64x3x3", ""], m=["", "448000"], n=["", "64"], k=["", "576"])  # fmt: skip
        width, of_product = found.high_us - found.low_us
        assert width > 1.3 * of_product
        assert found.low_us[0] < measured < found.high_us[0]
        assert "in whole models convolutions take" in found.basis[0]

    def test_of_attention_are_without_writing_a_cache(self) -> None:
        found = times(
            op=["attention_context", "aten::_scaled_dot_product_flash_attention"], dtype=["bf16"] * 2,
            batch=["8", ""], heads=["32", ""], head_dim=["128", ""], query=["512", ""], causal=["1", "1"],
            writes=["0", ""], shapes=["", "8x32x512x128 8x32x512x128 8x32x512x128"],
        )  # fmt: skip
        assert found.expected_us[0] == found.expected_us[1]

    def test_of_a_batch_are_longer_than_of_one_and_shorter_than_one_by_one(self) -> None:
        one, batch = times(
            op=["mm", "bmm"], dtype=["bf16"] * 2, shapes=["256x256 256x256", "64x256x256 64x256x256"]
        ).expected_us
        assert one < batch < 64 * one

    def test_without_a_mask_take_longer_than_under_one(self) -> None:
        masked, full = times(
            op=["aten::_scaled_dot_product_flash_attention"] * 2, dtype=["bf16"] * 2, causal=["1", "0"],
            shapes=["8x32x4096x128 8x32x4096x128 8x32x4096x128"] * 2,
        ).expected_us  # fmt: skip
        assert 1.5 < full / masked < 2.2

    def test_of_moved_bytes_grow_with_them_and_hold_for_every_gpu(self) -> None:
        for machine in ("h100-sxm", "t4"):
            found = times(machine, op=["gelu"] * 2, dtype=["bf16"] * 2, shapes=["1024x1024", "16384x16384"])
            assert (found.low_us < found.expected_us).all()
            assert (found.expected_us < found.high_us).all()
            assert (found.expected_us >= found.at_best_us).all()

    def test_of_rows_without_shapes_are_missing_with_a_reason(self) -> None:
        assert "are missing" in times(op=["aten::mm"], dtype=["bf16"]).failed[0]
        assert "no ATen name with shapes" in times(op=["mm"], dtype=["bf16"]).failed[0]
