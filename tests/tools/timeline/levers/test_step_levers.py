"""Each lever on a step, on a recording made for it: when it applies, and what the step gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity, OperatorInputs

from ncu_tools.cli.tables.step_text import step_lines
from ncu_tools.report.step_advice_table import lever_rows
from ncu_tools.timeline.graph.evidence import REFUSED
from ncu_tools.timeline.levers.lever import STEP_LEVERS
from ncu_tools.timeline.levers.recorded_steps import REPEATED
from ncu_tools.timeline.levers.situation import step_lever_texts
from ncu_tools.timeline.levers.step_advice import LeverOnStep, StepAdvice, advice_on_recording, step_advice
from tests.support.activities import PROCESS, Call, Operation, Range, copy, recording

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def launch(start: int, number: int, thread: int = 70) -> Call:
    return Call(start, start + 3 * US, correlation=number, thread=thread)


def in_line(names: Sequence[str], length: int = 100 * US, more: Sequence[Range] = ()) -> Activity:
    """Kernels of one stream, one behind the other, that the host launches ahead."""
    operations = [
        Operation(10 * US + at * length, 10 * US + (at + 1) * length, name, at) for at, name in enumerate(names)
    ]
    return recording(operations, [launch(5 * US * at, at) for at in range(len(names))], more)


def lever(found: Activity, name: str) -> LeverOnStep:
    return next(one for one in step_advice(found).levers if one.lever == name)


def names(found: StepAdvice) -> list[str]:
    return [one.lever for one in found.levers]


def test_every_lever_says_what_to_do_how_it_is_known_and_what_it_does_not_know() -> None:
    assert STEP_LEVERS.keys() == step_lever_texts().keys()
    for said in step_lever_texts().values():
        assert {"title", "remedy", "model", "source", "unknown", "check"} <= said.keys()


def few_pageable_bytes() -> Activity:
    """A copy of eight pageable bytes between two kernels, and a call that waits for it."""
    return recording(
        [Operation(10 * US, 1010 * US, "k", 1), copy(1011 * US, 1012 * US, 8, 2, source_memory=activity.PAGEABLE),
         Operation(1420 * US, 2420 * US, "k", 3)],
        [launch(0, 1), Call(6 * US, 8 * US, "cudaMemcpyAsync", 2),
         Call(9 * US, 1015 * US, "cudaStreamSynchronize", 9), launch(1415 * US, 3)],
    )  # fmt: skip


class TestTheInputPipeline:
    def loading(self) -> Activity:
        return recording(
            [Operation(5 * MS + 10 * US, 8 * MS, "gemm", 1)],
            [Call(0, 2 * US, "cudaGetDevice"), launch(5 * MS, 1), Call(5 * MS + 20 * US, 8 * MS, "cudaDeviceSynchronize")],
            [Range(10 * US, 4 * MS + 10 * US, "DataLoader.__next__")],
        )  # fmt: skip

    def test_saves_a_part_of_what_one_worker_hides_at_least_and_all_of_it_at_most(self) -> None:
        one = lever(self.loading(), "input-pipeline")
        assert one.saves.high_ns == pytest.approx(4 * MS)
        assert one.saves.low_ns == pytest.approx(0.55 * 4 * MS)  # the rest of the step is as long
        assert one.saves.likely_ns == pytest.approx(0.65 * 4 * MS)
        assert "DataLoader.__next__" in one.found.evidence[0]

    def test_is_not_counted_as_host_code_again(self) -> None:
        assert "host-code" not in names(step_advice(self.loading()))


def test_host_code_between_the_launches_of_two_threads_may_go_as_that_of_one_thread() -> None:
    found = recording(
        [Operation(10 * US, 20 * US, "forward", 1), Operation(30 * MS, 31 * MS, "backward", 2)],
        [launch(0, 1), launch(30 * MS - 10 * US, 2, thread=71)],
    )
    one = lever(found, "host-code")
    assert one.saves.high_ns == pytest.approx(30 * MS, rel=0.01)
    assert one.saves.low_ns == 0
    assert one.found.evidence == ("1 time a thread launches over 1 ms behind the last launch of another, 29.99 ms",)
    assert step_advice(found).gpu_alone_ns == pytest.approx(MS, rel=0.05)


class TestWarmUp:
    def cold(self, name: str = "cudaLaunchKernel") -> Activity:
        """Ten launches 100 us apart, behind one that takes 20 ms, a call that loads code, and one that allocates."""
        calls = [
            Call(0, 5 * MS, "cudaMalloc"), Call(5 * MS, 7 * MS, "cuModuleLoadData"),
            Call(8 * MS, 28 * MS, name, 0),
            *(launch(28 * MS + at * 100 * US, at) for at in range(1, 11)),
        ]  # fmt: skip
        operations = [Operation(28 * MS + at * 100 * US + 6 * US, 28 * MS + at * 100 * US + 20 * US, "k", at)
                      for at in range(11)]  # fmt: skip
        return recording(operations, calls)

    def test_takes_what_later_steps_do_not_pay_for(self) -> None:
        one = lever(self.cold(), "warm-up")
        assert one.saves.low_ns == 0
        assert one.saves.likely_ns == one.saves.high_ns == pytest.approx(27 * MS, abs=20 * US)
        assert one.found.evidence == (
            "1 launch of over 1 ms, as where code is loaded at its first use: 20 ms",
            "1 call that loads or unloads code: 2 ms",
            "1 call that allocates or frees memory: 5 ms",
        )

    def test_is_no_lever_for_the_launch_of_a_graph(self) -> None:
        assert lever(self.cold("cudaGraphLaunch"), "warm-up").saves.high_ns == pytest.approx(7 * MS, abs=20 * US)

    def test_is_none_where_nothing_is_loaded_or_allocated(self) -> None:
        assert "warm-up" not in names(step_advice(in_line(["k"] * 10)))


class TestCudaGraphs:
    def waiting_for_the_host(self, gap: int = 100 * US, pause: int = 0) -> Activity:
        """Two bursts of ten launches, `gap` apart, with a wait and a pause of the host between them."""
        operations, calls, at = list[Operation](), list[Call](), 0
        for number in range(20):
            calls.append(launch(at, number))
            operations.append(Operation(at + 6 * US, at + 10 * US, "k", number))
            at += gap
            if number == 9:
                calls.append(Call(at, at + 5 * US, "cudaDeviceSynchronize"))
                at += 5 * US + pause
        return recording(operations, calls)

    def test_take_the_host_time_between_launches_but_not_behind_a_wait(self) -> None:
        short, long = (lever(self.waiting_for_the_host(pause=one), "cuda-graphs") for one in (0, 50 * MS))
        assert 1.6 * MS < short.saves.low_ns < short.saves.high_ns < 1.9 * MS
        assert long.saves.high_ns == pytest.approx(short.saves.high_ns, abs=20 * US)

    def test_take_long_gaps_at_most(self) -> None:
        one = lever(self.waiting_for_the_host(gap=300 * US), "cuda-graphs")
        assert one.saves.low_ns < 0.1 * one.saves.high_ns

    def test_say_that_no_gpu_confirmed_them(self) -> None:
        assert lever(self.waiting_for_the_host(), "cuda-graphs").needs_gpu

    def test_are_no_lever_where_a_graph_is_launched_already(self) -> None:
        found = self.waiting_for_the_host()
        found.calls.names[0] = "cudaGraphLaunch"
        assert "cuda-graphs" not in names(step_advice(found))

    def test_of_little_stand_before_larger_batches_which_do_not_shorten_the_step(self) -> None:
        graphs, batch = step_advice(self.waiting_for_the_host(gap=300 * US)).levers
        assert (graphs.lever, batch.lever) == ("cuda-graphs", "batch")
        assert (graphs.saves.likely_ns or 0) < batch.saves.low_ns

    def test_bring_larger_batches_with_them(self) -> None:
        one = lever(self.waiting_for_the_host(), "batch")
        assert one.saves.high_ns == pytest.approx(one.saves.step_ns / 2, rel=0.05)


class TestCopies:
    def pageable(self, size: int = 64_000_000) -> Activity:
        """A copy of 64 MB at 6.4 GB/s that holds the host, and a kernel behind it."""
        return recording(
            [copy(10 * US, 10 * MS + 10 * US, size, 1, source_memory=activity.PAGEABLE),
             Operation(10 * MS + 30 * US, 11 * MS, "k", 2)],
            [Call(0, 10 * MS + 12 * US, "cudaMemcpyAsync", 1), launch(10 * MS + 20 * US, 2)],
        )  # fmt: skip

    def test_of_pageable_memory_take_as_long_as_pinned_ones(self) -> None:
        one = lever(self.pageable(), "pin-memory")
        assert one.saves.low_ns == pytest.approx(10 * MS - 64e6 / 12, abs=0.1 * MS)
        assert one.saves.high_ns == pytest.approx(10 * MS - 64e6 / 24, abs=0.1 * MS)
        assert "64 MB in 10 ms, 6.4 GB/s" in one.found.evidence[0]

    def test_of_eight_pageable_bytes_gain_what_the_call_behind_them_waits_for(self) -> None:
        one = lever(few_pageable_bytes(), "pin-memory")
        assert one.saves.high_ns == pytest.approx(405 * US, abs=5 * US)
        assert one.saves.low_ns < 2 * US
        assert one.found.evidence[1] == "1 wait of calls behind them: 1.006 ms"

    @pytest.mark.parametrize(("back", "likely"), [(64_000_000, True), (64, False)])
    def test_of_what_goes_to_the_gpu_and_back_again_are_likely_to_go(self, back: int, likely: bool) -> None:
        operations, calls = list[Operation](), list[Call]()
        for at in range(3):
            begun = at * 30 * MS
            operations += [
                copy(begun + 10 * US, begun + 10 * MS, 64_000_000, 3 * at),
                Operation(begun + 10 * MS + US, begun + 11 * MS, "k", 3 * at + 1),
                copy(begun + 11 * MS + US, begun + 21 * MS, back, 3 * at + 2, direction=activity.DEVICE_TO_HOST),
            ]
            calls += [launch(begun + 3 * US * one, 3 * at + one) for one in range(3)]
        one = lever(recording(operations, calls), "fewer-copies")
        assert (one.saves.likely_ns == one.saves.high_ns) is likely
        assert (one.saves.likely_ns is None) is not likely

    def test_may_go_at_most(self) -> None:
        one = lever(self.pageable(), "fewer-copies")
        assert (one.saves.low_ns, one.saves.likely_ns) == (0, None)
        assert one.saves.high_ns == pytest.approx(10 * MS, rel=0.01)


class TestWaits:
    def looking(self) -> Activity:
        """Five kernels of 1 ms; the host waits for each, looks at it for 500 us, and launches the next one."""
        operations, calls, ranges, at = list[Operation](), list[Call](), list[Range](), 0
        for number in range(5):
            operations.append(Operation(at + 6 * US, at + 1006 * US, "k", number))
            calls += [launch(at, number), Call(at + 10 * US, at + 1010 * US, "cudaStreamSynchronize")]
            ranges.append(Range(at + 8 * US, at + 1012 * US, "aten::item", activity.OPERATOR))
            at += 1510 * US
        return recording(operations, calls, ranges)

    def test_go_at_most_where_nothing_needs_the_result(self) -> None:
        one = lever(self.looking(), "fewer-waits")
        assert (one.saves.low_ns, one.saves.likely_ns) == (0, None)
        assert one.saves.high_ns == pytest.approx(4 * 500 * US, abs=50 * US)
        assert one.found.evidence == ("5 calls wait for the GPU, 5 ms; the longest together in aten::item",)

    def test_for_copies_from_pageable_memory_are_another_lever(self) -> None:
        assert "fewer-waits" not in names(step_advice(few_pageable_bytes()))


class TestCommunication:
    def ranks(self) -> Activity:
        """GPU 1 arrives 400 us late at a collective of 100 us."""
        return recording(
            [Operation(10 * US, 100 * US, "a", 1, device=0), Operation(10 * US, 500 * US, "b", 2, device=1),
             Operation(101 * US, 601 * US, NCCL, 3, device=0), Operation(501 * US, 601 * US, NCCL, 4, device=1),
             Operation(602 * US, 1100 * US, "c", 5, device=0), Operation(602 * US, 700 * US, "d", 6, device=1)],
            [launch(0, 1), launch(0, 2, 71), launch(5 * US, 3), launch(5 * US, 4, 71), launch(9 * US, 5),
             launch(9 * US, 6, 71)],
        )  # fmt: skip

    def test_that_waits_for_a_late_rank_says_which_and_what_balance_brings(self) -> None:
        one = lever(self.ranks(), "balance-ranks")
        assert one.saves.high_ns == pytest.approx(400 * US, abs=2 * US)
        assert one.saves.low_ns == pytest.approx(200 * US, abs=2 * US)
        assert "GPU 1 is the one waited for at 1 of these" in one.found.evidence[0]

    def test_may_hide_at_most(self) -> None:
        one = lever(self.ranks(), "overlap-communication")
        assert one.saves.low_ns == 0
        assert one.saves.high_ns > 400 * US

    def test_of_ranks_that_are_not_recorded_makes_savings_bounds(self) -> None:
        found = step_advice(recording([Operation(0, 900 * US, NCCL), Operation(901 * US, 1000 * US, "a")]))
        assert "communication whose other ranks are not recorded" in found.evidence.why


class TestKernels:
    ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"

    def test_in_chains_may_be_fused_and_what_feeds_which_is_open(self) -> None:
        one = lever(in_line(["gemm", self.ADD, self.ADD, self.ADD, "gemm"]), "fuse")
        assert one.saves.low_ns == 0
        assert one.saves.likely_ns is None
        assert one.saves.high_ns == pytest.approx(200 * US, abs=5 * US)
        assert "record_shapes=True" in one.found.evidence[0]

    def test_apart_from_each_other_are_no_chain(self) -> None:
        assert "fuse" not in names(step_advice(in_line([self.ADD, "gemm", self.ADD])))

    def test_of_fp32_products_run_on_tensor_cores(self) -> None:
        one = lever(in_line(["ampere_sgemm_128x64_nn"] * 2), "tensor-cores")
        assert one.saves.low_ns == pytest.approx(0.3 * 200 * US, rel=0.01)
        assert one.saves.high_ns == pytest.approx(0.75 * 200 * US, rel=0.01)

    @pytest.mark.parametrize(
        ("gpu", "said", "least", "most"),
        [
            ("NVIDIA GeForce RTX 3060", "peaks are TF32 1.0, BF16 2.0, FP16 2.0 times FP32's", 0.3, 0.5),
            ("Tesla T4", "peaks are FP16 8.0 times FP32's", 0.3, 0.875),
        ],
    )
    def test_of_fp32_products_take_the_fastest_type_of_their_gpu(
        self, gpu: str, said: str, least: float, most: float
    ) -> None:
        found = replace(
            in_line(["volta_sgemm_128x64_tn", "volta_scudnn_128x64_relu_nn_v1"]), devices={(PROCESS, 0): gpu}
        )
        one = lever(found, "tensor-cores")
        assert one.found.evidence[0].endswith(said)
        assert one.saves.low_ns == pytest.approx(least * 200 * US, rel=0.01)
        assert one.saves.high_ns == pytest.approx(most * 200 * US, rel=0.01)

    def test_of_16_bits_are_no_fp32_products(self) -> None:
        name = "void gemmSN_TN_kernel<float, 128, cublasGemvTensorStridedBatched<__nv_bfloat16 const> >(cublasGemmSmallNParams)"
        assert "tensor-cores" not in names(step_advice(in_line([name] * 2)))

    def test_of_dimensions_that_do_not_align_say_so_by_name(self) -> None:
        name = "void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_bf16_64x64_32x6_nt_align1>"
        one = lever(in_line([name] * 2), "align")
        assert (one.saves.low_ns, one.saves.high_ns) == pytest.approx((40 * US, 100 * US))

    def test_that_change_the_layout_go(self) -> None:
        one = lever(in_line(["gemm", "void cudnn::ops::nchwToNhwcKernel<float>", "gemm"]), "layout")
        assert one.saves.low_ns == pytest.approx(100 * US, abs=2 * US)

    def test_that_cast_may_go_at_most(self) -> None:
        cast = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>"
        one = lever(in_line(["gemm", cast, "gemm"]), "copies")
        assert one.saves.low_ns == 0
        assert one.saves.high_ns == pytest.approx(100 * US, abs=2 * US)


def with_inputs(found: Activity, inputs: dict[str, tuple[list[list[int]], str]]) -> Activity:
    """The recording with shapes and a type of the inputs of operators, by their names."""
    labels = [
        one._replace(inputs=OperatorInputs(inputs[one.name][0], [inputs[one.name][1]] * len(inputs[one.name][0])))
        if one.name in inputs else one
        for one in found.ranges.labels
    ]  # fmt: skip
    return replace(found, ranges=replace(found.ranges, labels=labels))


def operators_in_line(names: Sequence[tuple[str, str]], lengths: Sequence[int]) -> Activity:
    """Operators that launch a kernel each, 20 us apart on the host: pairs of operator and kernel."""
    operations, calls, ranges, at = list[Operation](), list[Call](), list[Range](), 100 * US
    for number, ((operator, kernel), length) in enumerate(zip(names, lengths, strict=True)):
        calls.append(launch(20 * US * number + 10 * US, number))
        ranges.append(Range(20 * US * number + 5 * US, 20 * US * number + 15 * US, operator, activity.OPERATOR))
        operations.append(Operation(at, at + length, kernel, number))
        at += length + US
    return recording(operations, calls, ranges)


class TestAttention:
    """Of 8 heads over 1,024 x 1,024 and 64 wide in BF16: 2.1 GFLOP, which the other product does in 0.1 ms."""

    SHAPES: ClassVar = {
        "aten::bmm": ([[8, 1024, 1024], [8, 1024, 1024]], "c10::BFloat16"),
        "aten::baddbmm": ([[8, 1024, 1024], [8, 1024, 64], [8, 64, 1024]], "c10::BFloat16"),
        "aten::_softmax": ([[1, 8, 1024, 1024]], "c10::BFloat16"),
        "aten::matmul": ([[8, 1024, 1024], [8, 1024, 64]], "c10::BFloat16"),
    }

    def eager(self, softmax: str = "aten::_softmax") -> Activity:
        names = [("aten::bmm", "gemm_best"), ("aten::add", "other"), ("aten::baddbmm", "gemm_1"), (softmax, "softmax"),
                 ("aten::matmul", "gemm_2")]  # fmt: skip
        return with_inputs(operators_in_line(names, [100 * US, 10 * US, 800 * US, 2_000 * US, 700 * US]), self.SHAPES)

    def test_in_parts_takes_as_long_as_its_flops_at_the_rate_of_the_best_products(self) -> None:
        one = lever(self.eager(), "sdpa")
        best = 2 * 8 * 1024**3 / 100e-6
        fused = 2 * 8 * 1024 * 1024 * (64 + 64) / best * 1e9
        assert one.saves.high_ns == pytest.approx(3_500 * US - fused, rel=0.01)
        assert one.saves.low_ns == pytest.approx(3_500 * US - fused / 0.4, rel=0.01)
        assert "1 attention of up to 3 kernels take 3.5 ms" in one.found.evidence[0]

    def test_without_a_softmax_of_its_shape_is_none(self) -> None:
        assert "sdpa" not in names(step_advice(self.eager("aten::relu")))
        wide = with_inputs(self.eager(), {**self.SHAPES, "aten::_softmax": ([[8, 1024, 512]], "c10::BFloat16")})
        assert "sdpa" not in names(step_advice(wide))


class TestFusedAttention:
    """Of 8 x 16 heads over 1,024 x 1,024 and 64 wide: 34.4 GFLOP, which the product beside it does in 0.8 ms."""

    SHAPES: ClassVar = {
        "aten::bmm": ([[8, 1024, 1024], [8, 1024, 1024]], "c10::BFloat16"),
        "aten::_flash_attention_forward": ([[8, 1024, 16, 64]] * 3, "c10::BFloat16"),
    }
    FLASH_2 = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)"

    def fused(self, length: int, gemm: str = "gemm_best", attention: str = "attn_fwd") -> Activity:
        names = [("aten::bmm", gemm), ("aten::_flash_attention_forward", attention)]
        return with_inputs(operators_in_line(names, [400 * US, length]), self.SHAPES)

    def test_that_is_slow_beside_the_best_products_comes_down_to_their_rate_at_most(self) -> None:
        one = lever(replace(self.fused(3_000 * US), devices={(7, 0): "NVIDIA A100-SXM4-80GB"}), "attention-kernel")
        at_best = 4 * 8 * 16 * 1024 * 1024 * 64 / (2 * 8 * 1024**3 / 400e-6) * 1e9
        assert one.saves.low_ns == pytest.approx(0)
        assert one.saves.likely_ns == pytest.approx(3_000 * US - at_best / 0.7, rel=0.01)
        assert one.saves.high_ns == pytest.approx(3_000 * US - at_best, rel=0.01)
        assert one.found.evidence == ("1 attention by shapes: 3 ms, 800 µs at the rate of the recording's best GEMMs",)

    def test_near_the_rate_of_the_products_has_no_lever(self) -> None:
        assert "attention-kernel" not in names(step_advice(self.fused(1_200 * US)))

    def test_of_unknown_shapes_has_no_lever(self) -> None:
        found = operators_in_line([("aten::mm", "gemm"), ("aten::other", "attn_fwd")], [100 * US, 3_000 * US])
        assert "attention-kernel" not in names(step_advice(found))

    def test_by_flash_attention_2_takes_half_to_85_percent_of_its_time_on_hopper(self) -> None:
        found = self.fused(1_000 * US, gemm="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", attention=self.FLASH_2)
        saves = lever(found, "attention-kernel").saves
        assert (saves.low_ns, saves.likely_ns, saves.high_ns) == pytest.approx((150 * US, 400 * US, 500 * US), rel=0.01)

    def test_by_flash_attention_2_stays_on_other_gpus(self) -> None:
        found = replace(self.fused(1_000 * US, attention=self.FLASH_2), devices={(7, 0): "NVIDIA A100-SXM4-80GB"})
        assert "attention-kernel" not in names(step_advice(found))


class TestShapes:
    def products(self, columns: int) -> Activity:
        found = operators_in_line([("aten::mm", "gemm"), ("aten::addmm", "gemm")], [100 * US, 800 * US])
        return with_inputs(found, {
            "aten::mm": ([[1024, 1024], [1024, 1024]], "c10::Half"),
            "aten::addmm": ([[columns], [1024, 1024], [1024, columns]], "c10::Half"),
        })  # fmt: skip

    def test_of_slow_products_may_reach_the_rate_of_the_best_ones(self) -> None:
        one = lever(self.products(1024), "gemm-shape")
        assert one.saves.high_ns == pytest.approx(700 * US, rel=0.01)
        assert one.saves.low_ns == pytest.approx(175 * US, rel=0.01)

    def test_that_are_no_multiple_of_eight_do_not_align(self) -> None:
        one = lever(self.products(1021), "align")
        assert (one.saves.low_ns, one.saves.high_ns) == pytest.approx((160 * US, 400 * US), rel=0.01)
        assert "align" not in names(step_advice(self.products(1024)))

    def test_tell_which_small_kernels_feed_the_next(self) -> None:
        kernel = TestKernels.ADD
        made = [("aten::mul", kernel), ("aten::add", kernel), ("aten::sub", kernel)]
        found = with_inputs(operators_in_line(made, [100 * US] * 3), {
            "aten::mul": ([[64, 64], [64, 64]], "float"), "aten::add": ([[64, 64], []], "float"),
            "aten::sub": ([[7], [7]], "float"),
        })  # fmt: skip
        one = lever(found, "fuse")
        assert one.saves.low_ns == pytest.approx(101 * US, rel=0.02)
        assert one.saves.high_ns == pytest.approx(202 * US, rel=0.1)


class TestAdvice:
    def test_is_for_each_step_where_steps_are_marked(self) -> None:
        steps = [Range(at * 25 * US, (at + 1) * 25 * US, f"ProfilerStep#{at}", activity.ANNOTATION) for at in range(2)]
        found = step_advice(in_line(["ampere_sgemm_128x64_nn"] * 10, more=steps))
        assert (found.step, found.steps) == ("step", 2)
        assert found.levers[0].saves.high_ns == pytest.approx(0.75 * 500 * US, rel=0.01)
        assert found.levers[0].saves.share(found.levers[0].saves.high_ns) == pytest.approx(0.75, rel=0.03)

    def test_says_how_long_host_and_gpu_take_alone(self) -> None:
        found = step_advice(in_line(["gemm"] * 10))
        assert found.gpu_alone_ns > 990 * US
        assert found.host_alone_ns < 100 * US

    def test_names_pairs_that_bring_more_together(self) -> None:
        calls = [launch(100 * US * at, at) for at in range(20)]
        operations = [
            Operation(100 * US * at + 6 * US, 100 * US * at + 101 * US, "ampere_sgemm_128x64_nn", at)
            for at in range(20)
        ]
        found = step_advice(recording(operations, calls))
        assert ("cuda-graphs", "tensor-cores") in [tuple(sorted(one.levers)) for one in found.pairs]

    def test_gives_no_lever_where_the_recording_explains_too_little(self) -> None:
        found = step_advice(recording([Operation(0, 10 * US, "a"), Operation(90 * US, 100 * US, "b")]))
        assert found.evidence.level == REFUSED
        assert not found.levers
        assert "no saving is given" in found.notes[0]

    def test_gives_none_where_launches_have_no_record(self) -> None:
        calls = [launch(100 * US * at, at) for at in range(12)]
        ran = [Operation(100 * US * at + 6 * US, 100 * US * at + 16 * US, "k", at) for at in (0, 1, 2, 10, 11)]
        found = step_advice(recording(ran, calls))
        assert found.evidence.level == REFUSED
        assert "what 7 launches ran was not recorded" in found.evidence.why

    def test_says_that_stacks_stretch_the_hosts_code(self) -> None:
        recorded = in_line(["gemm"], more=[Range(0, 10 * US, "a.py(1): f", activity.PYTHON)])
        for tool, option in (("kineto", " (with_stack)"), ("XLA's profiler", "")):
            found = step_advice(replace(recorded, tool=tool))
            assert any(f"recorded with Python's stacks{option}, which" in note for note in found.notes)

    def test_puts_what_was_asked_first(self) -> None:
        found = step_advice(in_line(["gemm"] * 10), asked=["gemm=0.5x", "gap:launch=0"])
        assert [title for title, _ in found.asked] == ["gemm=0.5x", "gap:launch=0", "gemm=0.5x, gap:launch=0"]
        assert found.asked[0][1].low_ns == pytest.approx(500 * US, rel=0.01)


class TestTheFirstCallOfAProgram:
    def starting(self, name: str) -> Activity:
        """A call of 200 ms before the first launch."""
        return recording(
            [Operation(209 * MS + 10 * US, 260 * MS, "k", 1)],
            [Call(0, 200 * MS, name), Call(201 * MS, 205 * MS, "cudaMalloc"), launch(209 * MS, 1)],
        )

    def test_creates_the_context_whatever_its_name(self) -> None:
        one = lever(self.starting("cudaEventCreate"), "warm-up")
        assert one.saves.high_ns == pytest.approx(204 * MS)
        assert "1 first call of a program of over 1 ms" in one.found.evidence[0]

    def test_is_no_context_where_it_allocates(self) -> None:
        one = lever(self.starting("cudaMalloc"), "warm-up")
        assert len(one.found.evidence) == 1
        assert "2 calls that allocate or free memory" in one.found.evidence[0]


class TestLoadingOutsideThePartThatRepeats:
    def layers(self, loading: int) -> Activity:
        """Data loaded before twelve layers of a forward pass."""
        names = ("gemm", "relu", "softmax", "norm") * 12
        operations = [
            Operation(loading + 10 * US + at * 100 * US, loading + 105 * US + at * 100 * US, name, at)
            for at, name in enumerate(names)
        ]
        return recording(
            operations, [launch(loading + 5 * US * at, at) for at in range(len(names))],
            [Range(0, loading, "DataLoader.__next__")],
        )  # fmt: skip

    def test_is_named_in_a_note(self) -> None:
        found = advice_on_recording(self.layers(800 * MS))
        assert found.step == REPEATED
        assert any("data were loaded for 800 ms, as in DataLoader.__next__" in one for one in found.notes)

    def test_is_not_where_the_part_takes_longer(self) -> None:
        assert not any("data were loaded" in one for one in advice_on_recording(self.layers(1 * MS)).notes)


@pytest.mark.parametrize(("kernel", "says"), [("solve", True), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", False)])
def test_a_kernel_that_takes_more_than_any_lever_saves_is_named_behind_them(kernel: str, says: bool) -> None:
    found = step_advice(
        recording(
            [Operation(10 * US + at * MS, (at + 1) * MS - 20 * US, kernel, at) for at in range(8)],
            [one for at in range(8)
             for one in (launch(at * MS, at), Call(at * MS + 4 * US, (at + 1) * MS - 15 * US, "cudaDeviceSynchronize"))],
        )
    )  # fmt: skip
    assert found.levers
    text = "\n".join(step_lines(found, lever_rows(found), 1_000))
    assert (f"{kernel} takes 9" in text and "more than any of these saves" in text) == says
