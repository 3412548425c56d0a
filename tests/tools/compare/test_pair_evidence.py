"""Which rule brings two kernels together, where each rule ends, and the numbers that launches get from it."""

from __future__ import annotations

import pytest
from ncu_launch.errors import WrongUsage

from ncu_tools.kernels.matching.asked_pairs import asked_pairs
from ncu_tools.kernels.matching.kernel_pairs import (
    ASKED,
    BY_NAME,
    BY_PLACE,
    BY_SHORT_NAME,
    BY_SHORT_NAME_ALONE,
    MOST_ALIKE,
    THE_ONLY_ONES,
    Pair,
    Pairing,
    pair_kernels,
)
from ncu_tools.kernels.matching.similar_names import argument_words, shared_words, words_of
from tests.tools.kernels.matching.test_kernel_pairs import LARGE, SMALL, K, pairs, signatures

HUGE = (512, 1, 1, 512, 1, 1)


def pairing(base: list[K], new: list[K]) -> Pairing:
    return pair_kernels(signatures(base), signatures(new))


class TestByName:
    def test_pairs_are_numbered_in_the_order_of_the_new_run_and_launches_by_their_pair(self) -> None:
        found = pairing([K("a"), K("b"), K("c")], [K("c"), K("a"), K("d", LARGE)])
        assert found.pairs == [Pair("c", None, BY_NAME), Pair("a", None, BY_NAME), Pair("b", "b", None),
                               Pair("d", None, None)]  # fmt: skip
        assert (found.base.tolist(), found.new.tolist()) == ([1, 2, 0], [0, 1, 3])

    def test_names_that_tools_spell_differently_are_one(self) -> None:
        assert pairs([K("void f<(int)1>(int)")], [K("void f<1>(int)")]) == {
            ("void f<1>(int)", "void f<1>(int)"): BY_NAME
        }


class TestByWhatTheyAreLaunchedWith:
    RANGED = K("x", SMALL, ("r",))
    """A kernel that is in a range: with one in each run, ranges are compared."""

    def test_the_short_name_counts_with_grid_and_block_and_with_ranges_where_both_have_them(self) -> None:
        assert pairs([K("f<1>")], [K("f<2>")]) == {("f<1>", "f<2>"): BY_SHORT_NAME_ALONE}
        base, new = [self.RANGED, K("f<1>", LARGE, ("a",))], [self.RANGED, K("f<2>", LARGE, ("a",))]
        assert pairs(base, new)["f<1>", "f<2>"] == BY_SHORT_NAME

    def test_ranges_of_one_run_alone_are_not_compared(self) -> None:
        assert pairs([K("f<1>", SMALL, ("a",))], [K("f<2>")]) == {("f<1>", "f<2>"): BY_SHORT_NAME_ALONE}

    def test_a_kernel_outside_of_all_ranges_is_found_by_its_short_name_and_not_by_its_place(self) -> None:
        base = [self.RANGED, K("f<1>", LARGE), K("softmax", HUGE), K("other", HUGE, ("q",))]
        new = [self.RANGED, K("f<2>", LARGE), K("attention", HUGE)]
        found = pairs(base, new)
        assert found["f<1>", "f<2>"] == BY_SHORT_NAME
        assert found["softmax", None] is found[None, "attention"] is None

    def test_the_place_alone_counts_where_names_share_nothing(self) -> None:
        base = [self.RANGED, K("softmax", LARGE, ("a",)), K("relu", LARGE, ("b",))]
        new = [self.RANGED, K("attention", LARGE, ("a",)), K("gelu", LARGE, ("b",))]
        assert pairs(base, new) == {
            ("x", "x"): BY_NAME, ("softmax", "attention"): BY_PLACE, ("relu", "gelu"): BY_PLACE,
        }  # fmt: skip

    def test_the_place_is_not_told_without_a_shape(self) -> None:
        base = [self.RANGED, K("softmax", None, ("a",)), K("relu", None, ("b",))]
        new = [self.RANGED, K("attention", None, ("a",)), K("gelu", None, ("b",))]
        assert set(pairs(base, new)) >= {("softmax", None), (None, "gelu")}

    @pytest.mark.parametrize("more_in_base", [True, False])
    def test_two_of_one_run_are_not_the_one_of_the_other(self, more_in_base: bool) -> None:
        two, one = [K("f<1>"), K("f<2>")], [K("f<3>")]
        assert set(pairs(*((two, one) if more_in_base else (one, two))).values()) == {None}

    def test_functors_tell_kernels_apart_unless_their_range_is_the_same(self) -> None:
        fill, add = "vec<4, at::FillFunctor<float>>", "vec<4, at::AddFunctor<float>>"
        left_over = [K("softmax", LARGE)]
        assert pairs([K(fill), *left_over], [K(add)])[fill, None] is None
        base, new = [self.RANGED, K(fill, LARGE, ("a",))], [self.RANGED, K(add, LARGE, ("a",))]
        assert pairs(base, new)[fill, add] == BY_SHORT_NAME

    def test_several_launches_of_one_kernel_make_one_pair_and_what_is_new_is_a_pair_of_its_own(self) -> None:
        base, new = [K("f<1>"), K("f<1>", LARGE)], [K("f<2>", LARGE), K("f<2>"), K("f<2>", HUGE)]
        found = pairing(base, [*new, K("add", HUGE), K("mul", HUGE)])
        assert found.pairs[0] == Pair("f<2>", "f<1>", BY_SHORT_NAME_ALONE)
        assert found.pairs[1:] == [Pair(name, None, None) for name in ("f<2>", "add", "mul")]
        assert (found.base.tolist(), found.new.tolist()) == ([0, 0], [0, 0, 1, 2, 3])


class TestTheOnlyOnesLeft:
    def test_are_similar_before_they_are_the_only_ones(self) -> None:
        assert pairs([K("gemm_naive")], [K("gemm_tiled")]) == {
            ("gemm_naive", "gemm_tiled"): "similar name (gemm), grid, block, only candidate"
        }

    def test_are_the_same_where_their_grids_and_ranges_are_in_any_order(self) -> None:
        base = [K("softmax", SMALL, ("a",)), K("softmax", LARGE, ("b",))]
        new = [K("attention", SMALL, ("b",)), K("attention", LARGE, ("a",))]
        assert pairs(base, new) == {("softmax", "attention"): THE_ONLY_ONES}
        assert set(pairs(base, [K("attention", SMALL, ("c",)), K("attention", LARGE, ("a",))]).values()) >= {None}
        elsewhere = [K("attention", SMALL, ("c",)), K("attention", LARGE, ("d",))]
        assert set(pairs(base, elsewhere).values()) == {None}

    def test_are_the_same_where_only_one_run_knows_ranges(self) -> None:
        assert pairs([K("softmax", SMALL, ("a",))], [K("attention")]) == {("softmax", "attention"): THE_ONLY_ONES}

    def test_are_not_two_against_one(self) -> None:
        assert set(pairs([K("softmax"), K("relu", LARGE)], [K("attention")]).values()) == {None}
        assert set(pairs([K("softmax"), K("relu")], [K("attention"), K("gelu")]).values()) == {None}


class TestSimilarNames:
    def test_tell_apart_up_to_fifty_kernels_that_begin_alike(self) -> None:
        assert MOST_ALIKE == 50

        def versions(count: int, version: int, shape: tuple[int, ...]) -> list[K]:
            return [K(f"gemm_{chr(97 + at // 26)}q{chr(97 + at % 26)}_v{version}", shape) for at in range(count)]

        told = pairs(versions(50, 1, SMALL), versions(50, 2, LARGE))
        assert {name for name in told.values() if name is None} == set()
        assert set(pairs(versions(51, 1, SMALL), versions(51, 2, LARGE)).values()) == {None}

    def test_pair_kernels_where_only_one_run_has_nvtx_ranges(self) -> None:
        found = pairs([K("norm_v1", SMALL, ("a",)), K("y")], [K("norm_v2", LARGE), K("y")])
        assert found["norm_v1", "norm_v2"] == "similar name (norm), only candidate"

    def test_pair_the_kernels_that_are_left_when_the_closest_have_found_each_other(self) -> None:
        found = pairs([K("gemm_v1"), K("gemm_v2", HUGE)], [K("gemm_v3"), K("gemm_v4", LARGE)])
        assert found == {
            ("gemm_v1", "gemm_v3"): "similar name (gemm), grid, block, closest",
            ("gemm_v2", "gemm_v4"): "similar name (gemm), closest",
        }

    def test_pair_those_that_are_left_whichever_of_each_run_found_each_other_first(self) -> None:
        first, left = K("gemm_v1"), K("gemm_v2", HUGE)
        for base in ([first, left], [left, first]):
            for new in ([K("gemm_v3"), K("gemm_v4", LARGE)], [K("gemm_v4", LARGE), K("gemm_v3")]):
                assert pairs(base, new) == {
                    ("gemm_v1", "gemm_v3"): "similar name (gemm), grid, block, closest",
                    ("gemm_v2", "gemm_v4"): "similar name (gemm), closest",
                }

    def test_do_not_pair_a_kernel_that_was_split_in_two(self) -> None:
        assert set(pairs([K("add_bias_relu")], [K("add_bias", LARGE), K("relu", LARGE)]).values()) == {None}

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("rmsNormV2", ("rms", "norm")), ("gemm_x_kernel", ("gemm",)), ("gemm_q_kernel", ("gemm",)), ("f", ("f",)), ("p_q", ("p", "q")), ("qk_norm_f", ("qk", "norm")),
            ("void ns::softmax_warp<float, 4>(float*)", ("softmax",)), ("GEMM_Tiled", ("gemm",)), ("kernel_1", ()),
        ],
    )  # fmt: skip
    def test_are_made_of_words_that_say_what_is_done(self, name: str, words: tuple[str, ...]) -> None:
        assert words_of(name) == words

    def test_have_arguments_of_functors_and_not_of_types(self) -> None:
        assert argument_words("void vec<4, at::native::AddFunctor<float>>(int)") == {"add", "functor"}
        assert argument_words("void vec<float, 4>(int)") == frozenset()

    def test_share_the_words_that_both_begin_with(self) -> None:
        assert shared_words("softmax_online_a_loop", "softmax_online_pass") == ("softmax", "online")
        assert shared_words("conv_bwd_x", "conv_dgrad") == ("conv",)
        assert shared_words("conv_bwd", "conv_out") == ()
        assert shared_words("online_softmax", "softmax_online") == ()


class TestWorks:
    """Launches of one pair that have grid, block and range in common are one work of both runs."""

    def test_are_told_apart_by_their_grids_where_both_runs_know_them(self) -> None:
        found = pairing([K("a"), K("a", LARGE)], [K("a", LARGE), K("a"), K("a", HUGE)])
        assert (found.base_strata.tolist(), found.new_strata.tolist()) == ([0, 1], [1, 0, 2])

    def test_are_told_apart_by_their_ranges_where_both_runs_know_them(self) -> None:
        found = pairing([K("a", SMALL, ("x",)), K("a", SMALL, ("y",))], [K("a", SMALL, ("y",)), K("a", SMALL)])
        assert (found.base_strata.tolist(), found.new_strata.tolist()) == ([0, 1], [1, 2])

    def test_are_not_told_apart_by_what_one_run_does_not_know(self) -> None:
        base = [K("a", SMALL, ("x",)), K("a", LARGE, ("y",))]
        found = pairing(base, [K("a", None)])
        assert (found.base_strata.tolist(), found.new_strata.tolist()) == ([0, 0], [0])


class TestTheWordOfTheUser:
    def test_gives_launches_their_pairs_and_leaves_the_others(self) -> None:
        base, new = [K("a"), K("b"), K("c")], [K("a", LARGE), K("b"), K("c")]
        asked = asked_pairs(["a=b", "b=a"], ["a", "b", "c"], [["a", "b", "c"]])
        found = pair_kernels(signatures(base), signatures(new), asked)
        assert found.pairs == [Pair("b", "a", ASKED), Pair("a", "b", ASKED), Pair("c", None, BY_NAME)]
        assert (found.base.tolist(), found.new.tolist()) == ([0, 1, 2], [1, 0, 2])

    def test_holds_in_a_run_that_has_the_kernel_and_not_in_another(self) -> None:
        asked = asked_pairs(["b=x", "b=y"], ["b"], [["x"], ["y"]])
        found = pair_kernels(signatures([K("b")]), signatures([K("y", LARGE)]), asked)
        assert found.pairs == [Pair("y", "b", ASKED)]

    def test_takes_a_full_name_in_the_spelling_of_any_tool_and_no_other_instance(self) -> None:
        base, new = [K("void f<1>(int)"), K("g")], [K("h", LARGE), K("g")]
        assert pairs(base, new, "void f<(int)1>(int)=h")["void f<1>(int)", "h"] == ASKED
        with pytest.raises(WrongUsage, match="no kernel of the base is called void f<2>"):
            pairs(base, new, "void f<2>(int)=h")

    def test_may_not_name_a_kernel_of_the_new_run_twice(self) -> None:
        with pytest.raises(WrongUsage, match="--pair names x of the new run twice"):
            pairs([K("a"), K("b")], [K("x"), K("y")], "a=x", "b=x")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("c=d=zzz", "no kernel of the new run is called zzz"),
            ("z=zz=y", "no kernel of the base is called z=zz"),
            ("p=q=r", "no kernel of the base is called p"),
        ],
    )
    def test_with_several_equals_signs_is_split_where_a_name_is_known(self, text: str, words: str) -> None:
        with pytest.raises(WrongUsage, match=f"{words}\\."):
            pairs([K("c=d")], [K("y")], text)

    @pytest.mark.parametrize(
        ("asked", "near"),
        [
            ("layer_nrom", "layer_norm"),
            ("softmax_v0", "softmax_v4, softmax_v3, softmax_v2"),
            ("0123456789", "aaa, bbb, ccc"),
        ],
    )
    def test_on_a_wrong_name_is_answered_with_the_three_nearest_or_the_first_three(self, asked: str, near: str) -> None:
        names = ["aaa", "bbb", "ccc", "ddd", "layer_norm", *(f"softmax_v{number}" for number in range(1, 5))]
        with pytest.raises(WrongUsage) as raised:
            pairs([K(name) for name in names], [K("x")], f"{asked}=x")
        assert raised.value.cause == f"Kernels there with a name like it: {near}."
