"""Kernels paired between two runs after a rename: the evidence, and pairs that the user names."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import WrongUsage

from ncu_tools.kernels.matching.asked_pairs import asked_pairs
from ncu_tools.kernels.matching.kernel_pairs import ASKED, BY_SHORT_NAME_ALONE, THE_ONLY_ONES, pair_kernels
from ncu_tools.kernels.matching.launch_signatures import LaunchSignature, Signatures, signatures_of
from ncu_tools.kernels.matching.similar_names import shared_words
from ncu_tools.kernels.names.kernel_ids import kernel_id

SMALL, LARGE = (8, 1, 1, 128, 1, 1), (64, 1, 1, 256, 1, 1)


class K(NamedTuple):
    """A kernel with its launch configuration."""

    name: str
    shape: tuple[int, ...] | None = SMALL
    range: tuple[str, ...] | None = None


def signatures(kernels: Iterable[K]) -> Signatures:
    return signatures_of([LaunchSignature(*kernel) for kernel in kernels])


def pairs(base: list[K], new: list[K], *asked: str) -> dict[tuple[str | None, str | None], str | None]:
    """What matched each kernel before and after; None on the side that lacks it."""
    meant = asked_pairs(asked, [kernel.name for kernel in base], [[kernel.name for kernel in new]])
    found: dict[tuple[str | None, str | None], str | None] = {}
    before = {kernel.name for kernel in base}
    for pair in pair_kernels(signatures(base), signatures(new), meant).pairs:
        if pair.matched_by is None:
            found[(pair.kernel, None) if pair.kernel in before and pair.was else (None, pair.kernel)] = None
        else:
            found[pair.was or pair.kernel, pair.kernel] = pair.matched_by
    return found


class TestARewrittenKernel:
    def test_is_matched_by_the_beginning_of_its_name_whatever_its_grid(self) -> None:
        found = pairs([K("add"), K("rms_norm_v1")], [K("add"), K("rms_norm_float4", LARGE)])
        assert found == {
            ("add", "add"): "name",
            ("rms_norm_v1", "rms_norm_float4"): "similar name (rms_norm), only candidate",
        }

    @pytest.mark.parametrize(
        ("old", "new", "evidence"),
        [
            ("gemm_naive", "gemm_tiled", "similar name (gemm), only candidate"),
            ("naive_matmul", "matmulTiled", "similar name (matmul), only candidate"),
            ("rmsNormV1(float*)", "rms_norm_v2<float4>(float4*)", "similar name (rms_norm), only candidate"),
            ("reduce0<512>(int*)", "reduce6<256>(int*)", "similar name (reduce), only candidate"),
            ("silu_kernel_vector(float *, int)", "silu_kernel_non_strided", "similar name (silu), only candidate"),
            ("f<1>", "f<2>", "short name, only candidate"),
        ],
    )
    def test_is_matched_for_common_ways_of_naming_versions(self, old: str, new: str, evidence: str) -> None:
        assert pairs([K(old)], [K(new, LARGE)]) == {(old, new): evidence}

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("softmax", "layer_norm"),
            ("rms_norm_v1", "layer_norm_v1"),
            ("relu_fwd", "relu_bwd"),
            ("triton_poi_fused_add_0", "triton_poi_fused_mul_0"),
            ("kernel_1", "kernel_2"),
            ("at::native::vec<4, at::native::FillFunctor<float>>", "at::native::vec<4, at::native::AddFunctor<float>>"),
            ("reduce_v1<SumFunctor<float>>", "reduce_v2<MaxFunctor<float>>"),
            ("qk_scale_v1", "kv_scale_v2"),
            ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>", "void cutlass::Kernel2<cutlass_80_simt_sgemm>"),
        ],
    )
    def test_is_not_matched_to_a_kernel_that_does_something_else(self, old: str, new: str) -> None:
        assert pairs([K(old)], [K(new, LARGE)]) == {(old, None): None, (None, new): None}

    def test_is_not_matched_if_two_candidates_are_equally_good(self) -> None:
        found = pairs([K("gemm_v1")], [K("gemm_v2", LARGE), K("gemm_v3", LARGE)])
        assert set(found) == {("gemm_v1", None), (None, "gemm_v2"), (None, "gemm_v3")}
        assert set(pairs([K("gemm_v2"), K("gemm_v3")], [K("gemm_v1", LARGE)]).values()) == {None}

    def test_with_two_equally_similar_candidates_is_the_one_with_the_same_grid_and_block(self) -> None:
        found = pairs([K("gemm_v1"), K("gemm_v2", LARGE)], [K("gemm_v3", LARGE), K("gemm_v4")])
        assert found == {
            ("gemm_v1", "gemm_v4"): "similar name (gemm), grid, block, closest",
            ("gemm_v2", "gemm_v3"): "similar name (gemm), grid, block, closest",
        }

    def test_is_the_closest_of_several_and_the_rest_is_matched_afterwards(self) -> None:
        base = [K("softmax_online_v1"), K("softmax_loop_v1")]
        for before in (base, base[::-1]):
            found = pairs(before, [K("softmax_online_v2", LARGE), K("softmax_v3", LARGE)])
            assert found["softmax_online_v1", "softmax_online_v2"] == "similar name (softmax_online), only candidate"
            assert found["softmax_loop_v1", "softmax_v3"] == "similar name (softmax), only candidate"

    def test_is_the_closest_where_it_or_its_match_had_another_candidate(self) -> None:
        for base, new in (
            ([K("gemm_v1")], [K("gemm_v2", LARGE), K("gemm_v3")]),
            ([K("gemm_v2", LARGE), K("gemm_v3")], [K("gemm_v1")]),
        ):
            assert "similar name (gemm), grid, block, closest" in pairs(base, new).values()

    def test_is_not_matched_to_one_that_may_do_the_work_of_two(self) -> None:
        found = pairs([K("add_bias"), K("relu")], [K("add_bias_relu", LARGE)])
        assert set(found.values()) == {None}

    def test_with_ranges_is_matched_in_the_same_range_only(self) -> None:
        base = [K("norm_v1", SMALL, ("a",)), K("x", SMALL, ("c",))]
        assert pairs(base, [K("norm_v2", LARGE, ("a",)), K("x", SMALL, ("c",))])["norm_v1", "norm_v2"]
        assert ("norm_v1", None) in pairs(base, [K("norm_v2", LARGE, ("b",)), K("x", SMALL, ("c",))])

    @pytest.mark.slow
    def test_is_matched_in_seconds_among_thousands(self) -> None:
        base = [K(f"{chr(97 + a)}{chr(97 + b)}k_v{n}") for a in range(26) for b in range(6) for n in range(20)]
        started = time.process_time()
        found = pairs([*base, K("rms_norm_v1")], [K(f"{one.name}x", LARGE) for one in base] + [K("rms_norm_v2", LARGE)])
        assert time.process_time() - started < 10
        assert found["rms_norm_v1", "rms_norm_v2"]


class TestAKernelWithAnotherName:
    def test_is_matched_by_grid_and_block_if_no_other_kernel_is_left(self) -> None:
        base, new = [K("add"), K("softmax")], [K("add"), K("attention")]
        assert pairs(base, new)["softmax", "attention"] == THE_ONLY_ONES
        assert ("softmax", None) in pairs(base, [*new, K("other", LARGE)])
        assert ("softmax", None) in pairs(base, [K("add"), K("attention", LARGE)])

    def test_is_not_matched_without_a_grid(self) -> None:
        assert set(pairs([K("softmax", None)], [K("attention", None)]).values()) == {None}

    def test_is_not_matched_to_one_of_two_template_instances(self) -> None:
        found = pairs([K("f<1>"), K("f<2>")], [K("f<3>")])
        assert set(found.values()) == {None}
        assert pairs([K("f<1>")], [K("f<3>")]) == {("f<1>", "f<3>"): BY_SHORT_NAME_ALONE}


class TestPairsOfTheUser:
    base = (K("void a<1>(int)"), K("b"), K("c=d"))
    new = (K("b"), K("void e<2>(int)", LARGE), K("x=y"))

    @pytest.mark.parametrize(
        ("text", "old", "new"),
        [
            ("a=e", "void a<1>(int)", "void e<2>(int)"),
            ("void a<1>(int)=e<2>", "void a<1>(int)", "void e<2>(int)"),
            ("b = e", "b", "void e<2>(int)"),
            ("c=d=x=y", "c=d", "x=y"),
        ],
    )
    def test_match_kernels_by_full_and_short_names(self, text: str, old: str, new: str) -> None:
        assert pairs(list(self.base), list(self.new), text)[old, new] == ASKED

    def test_match_kernels_by_the_keys_that_commands_print(self) -> None:
        old, new = kernel_id("void a<1>(int)"), kernel_id("void e<2>(int)")
        for text in (f"{old}={new}", f" {old} = e", f"a={new}"):
            assert pairs(list(self.base), list(self.new), text)["void a<1>(int)", "void e<2>(int)"] == ASKED

    def test_take_precedence_over_equal_names(self) -> None:
        found = pairs([K("a"), K("b")], [K("a", LARGE), K("b")], "a=b", "b=a")
        assert found == {("a", "b"): ASKED, ("b", "a"): ASKED}

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("rms_nrom_v1=layer", r"no kernel of the base is called rms_nrom_v1\..* rms_norm_v1"),
            ("rms_norm_v1=layr", r"no kernel of the new run is called layr\..* layer"),
            ("rms_norm_v1", "names one kernel"),
            ("=", "is called nothing"),
        ],
    )
    def test_with_an_unknown_kernel_are_an_error_with_similar_names(self, text: str, words: str) -> None:
        with pytest.raises(WrongUsage, match=words):
            pairs([K("rms_norm_v1")], [K("layer")], text)

    def test_can_name_a_kernel_only_once(self) -> None:
        with pytest.raises(WrongUsage, match="names b of the base twice"):
            pairs([K("b")], [K("x"), K("y")], "b=x", "b=y")

    def test_apply_to_those_of_several_runs_that_have_the_kernel(self) -> None:
        found = asked_pairs(["b=x", "b=y"], ["b"], [["x"], ["y"]])
        assert [pair.new for pair in found] == [{"x"}, {"y"}]


names = st.sampled_from(["rms_norm_v1", "rms_norm_v2", "layer_norm", "f<1>", "f<2>(int)", "kernel_1", "add_relu"])


@given(st.lists(st.builds(K, names, st.sampled_from([SMALL, LARGE, None])), max_size=8, unique=True),
       st.lists(st.builds(K, names, st.sampled_from([SMALL, LARGE, None])), max_size=8, unique=True))  # fmt: skip
def test_every_launch_has_a_pair_with_one_name_on_each_side(base: list[K], new: list[K]) -> None:
    found = pair_kernels(signatures(base), signatures(new))
    for side, codes in ((base, found.base), (new, found.new)):
        assert (codes >= 0).all()
        for pair in set(codes.tolist()):
            assert len({kernel.name for kernel, code in zip(side, codes, strict=True) if code == pair}) == 1


@given(names, names)
def test_name_similarity_is_symmetric(one: str, other: str) -> None:
    assert shared_words(one, other) == shared_words(other, one)
