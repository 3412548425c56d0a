"""What `--vary` writes as points: values, pairs, ranges, grids, and what is refused with which words."""

from __future__ import annotations

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.targets.varied_arguments import settings_in, variants_of, varied
from ncu_launch.workload_spec import Workload


def values(*texts: str) -> list[str]:
    """The points as words: n=64 kind=a."""
    return [" ".join(f"{name}={value}" for name, value in point) for point in variants_of(texts)]


class TestPoints:
    def test_without_any_there_is_one_that_sets_nothing(self) -> None:
        assert variants_of(()) == ((),)

    def test_each_value_is_a_point(self) -> None:
        assert values("n=64,128, 256") == ["n=64", "n=128", "n=256"]

    def test_several_options_are_a_grid_whose_last_name_varies_fastest(self) -> None:
        assert values("n=1,2", "kind=a,b") == ["n=1 kind=a", "n=1 kind=b", "n=2 kind=a", "n=2 kind=b"]

    def test_names_behind_one_option_vary_together(self) -> None:
        assert values("m,n=1024x1024,2048x512") == ["m=1024 n=1024", "m=2048 n=512"]

    def test_one_name_takes_shapes_whole(self) -> None:
        assert values("shape=8x8,16x4") == ["shape=8x8", "shape=16x4"]

    def test_a_value_given_twice_is_one_point(self) -> None:
        assert values("n=64,64..128*2") == ["n=64", "n=128"]


class TestRanges:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("64..4096*2", ["64", "128", "256", "512", "1024", "2048", "4096"]),
            ("64..256+64", ["64", "128", "192", "256"]),
            ("64..200*2", ["64", "128"]),
            ("0.1..0.5+0.2", ["0.1", "0.3", "0.5"]),
            ("-2..2+2", ["-2", "0", "2"]),
            ("7..7*2", ["7"]),
            ("1..10*1.5", ["1", "1.5", "2.25", "3.375", "5.0625", "7.59375"]),
        ],
    )
    def test_multiply_or_add_exactly_up_to_the_last_value(self, text: str, found: list[str]) -> None:
        assert values(f"n={text}") == [f"n={one}" for one in found]

    @pytest.mark.parametrize("text", ["64..32*2", "64..512*1", "64..512+0", "64..512*-2", "nan..5+1"])
    def test_that_never_end_are_refused(self, text: str) -> None:
        with pytest.raises(
            WrongUsage, match=r"the step never reaches (32|512|5)\. Use a (factor above 1|step above 0)"
        ):
            variants_of((f"n={text}",))

    @pytest.mark.parametrize("text", ["64..512", "1..b*2", "1..5*x", "1...5"])
    def test_that_are_none_are_refused_with_how_to_write_one(self, text: str) -> None:
        with pytest.raises(WrongUsage, match=r"no range.*n=64\.\.4096\*2|no range.*Write --vary"):
            variants_of((f"n={text}",))

    def test_are_of_numbers_and_a_path_is_a_value(self) -> None:
        assert values("file=../a.bin,../b.bin") == ["file=../a.bin", "file=../b.bin"]

    def test_that_multiply_begin_above_zero(self) -> None:
        with pytest.raises(WrongUsage, match="does not begin above 0"):
            variants_of(("n=0..8*2",))

    def test_of_a_thousand_values_and_more_are_refused(self) -> None:
        with pytest.raises(WrongUsage, match="more than 1000 values"):
            variants_of(("n=1..100000+1",))


class TestRefused:
    @pytest.mark.parametrize("text", ["n", "=1,2", "n=", "n=1,,2", "9n=1", "m,=1x2"])
    def test_is_what_names_nothing_or_has_no_values(self, text: str) -> None:
        with pytest.raises(WrongUsage, match="does not name what varies"):
            variants_of((text,))

    def test_is_a_pair_with_too_few_values(self) -> None:
        with pytest.raises(WrongUsage, match="names 2 arguments, and 1024 has 1 values"):
            variants_of(("m,n=1024",))

    def test_is_a_name_that_varies_twice_also_under_another_spelling(self) -> None:
        for texts in (("n=1,2", "n=3"), ("batch=1", "batch_size=2"), ("n,n=1x2",)):
            with pytest.raises(WrongUsage, match="is varied twice"):
                variants_of(texts)


class TestAWorkload:
    def test_gets_sizes_and_types_as_settings_and_everything_else_as_arguments(self) -> None:
        (variant,) = variants_of(("batch_size,seq_len=8x128", "dtype=bf16", "n=64"))
        found = varied(Workload("k.py:f", arguments=(("p", "1"),)), variant, takes_arguments=True)
        assert (found.batch_size, found.sequence_length, found.dtype) == (8, 128, "bf16")
        assert found.arguments == (("p", "1"), ("n", "64"))
        assert settings_in([variant]) == {"batch_size", "sequence_length", "dtype"}

    def test_of_a_model_has_settings_and_no_arguments(self) -> None:
        assert varied(Workload("resnet18"), (("batch_size", "8"),), takes_arguments=False).batch_size == 8
        with pytest.raises(WrongUsage, match="resnet18 has no argument n that --vary could set"):
            varied(Workload("resnet18"), (("n", "8"),), takes_arguments=False)

    def test_is_refused_where_a_value_is_given_by_arg_too(self) -> None:
        with pytest.raises(WrongUsage, match="n is varied, and --arg gives it a value"):
            varied(Workload("k.py:f", arguments=(("n", "1"),)), (("n", "2"),), takes_arguments=True)

    @pytest.mark.parametrize(("name", "value", "why"), [
        ("dtype", "fp12", "none of fp32"), ("mode", "fast", "none of eager"), ("batch_size", "0", "is no size"),
        ("seq_len", "1.5", "is no size"),
    ])  # fmt: skip
    def test_is_refused_for_a_setting_that_there_is_not(self, name: str, value: str, why: str) -> None:
        with pytest.raises(WrongUsage, match=why):
            varied(Workload("k.py:f"), ((name, value),), takes_arguments=True)
