"""What formulas ask of a call: its tensors and their bytes, its numbers, and the type of a result."""

from __future__ import annotations

from typing import Any

import pytest
from ncu_launch.operators.calls import (
    ELEMENT_BYTES,
    UNRECORDED,
    Call,
    Tensor,
    UnknownWork,
    broadcast,
    of_floats,
    promoted,
)

FLOAT = Tensor((2, 3), "float32")
WHOLE = Tensor((4,), "int64")


def call(*arguments: Any) -> Call:
    return Call("aten::any", arguments)


class TestATensor:
    @pytest.mark.parametrize(
        ("shape", "strides", "elements", "size"),
        [
            ((2, 3), None, 6, 24), ((2, 3), (3, 1), 6, 24), ((2, 3), (0, 1), 6, 12), ((2, 3), (0, 0), 6, 4),
            ((0, 3), (0, 1), 0, 0), ((2, 3), (0,), 6, 24), ((), (), 1, 4), ((), None, 1, 4),
        ],
    )  # fmt: skip
    def test_has_bytes_of_its_elements_of_which_broadcast_ones_count_once(
        self, shape: tuple[int, ...], strides: tuple[int, ...] | None, elements: int, size: int
    ) -> None:
        found = Tensor(shape, "float32", strides)
        assert (found.elements, found.bytes) == (elements, size)

    def test_has_elements_of_as_many_bits_as_its_type_says(self) -> None:
        bits = {"bool": 8, "bfloat16": 16, "float4_e2m1fn_x2": 8, "float8_e4m3fn": 8, "float8_e5m2": 8}
        bits |= {"float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8}
        bits |= {f"{kind}{size}": size for kind in ("int", "uint") for size in (8, 16, 32, 64)}
        bits |= {f"float{size}": size for size in (16, 32, 64)} | {f"complex{size}": size for size in (32, 64, 128)}
        assert {name: 8 * size for name, size in ELEMENT_BYTES.items()} == bits

    def test_of_a_type_that_is_not_known_has_no_bytes(self) -> None:
        for dtype, word in (("quint8", "quint8"), ("", r"\?")):
            with pytest.raises(UnknownWork, match=word):
                assert Tensor((2,), dtype).bytes
        assert [Tensor((), name).is_float for name in ("float16", "bfloat16", "complex64", "int8", "bool")] == [
            True, True, True, False, False,
        ]  # fmt: skip


class TestACall:
    def test_has_tensors_at_their_places_and_says_which_lacks(self) -> None:
        some = call(FLOAT, 3, None, [FLOAT, WHOLE])
        assert some.tensor(0) is FLOAT
        assert [some.is_tensor(place) for place in range(5)] == [True, False, False, False, False]
        for place in (1, 2, 3, 4):
            with pytest.raises(UnknownWork, match=f"argument {place}"):
                some.tensor(place)
        assert list(some.every_tensor()) == [FLOAT, FLOAT, WHOLE]
        assert some.given_bytes(range(9)) == 24
        assert list(call([FLOAT, None, 3], (WHOLE,)).every_tensor()) == [FLOAT, WHOLE]

    def test_has_lists_of_tensors_only_where_all_are_recorded(self) -> None:
        assert call([FLOAT, WHOLE]).tensors(0) == call((FLOAT, WHOLE)).tensors(0) == (FLOAT, WHOLE)
        for lacking in ([], [FLOAT, None], UNRECORDED, None, FLOAT):
            with pytest.raises(UnknownWork, match="tensors of argument 0"):
                call(lacking).tensors(0)
        with pytest.raises(UnknownWork, match="tensors of argument 1"):
            call([FLOAT]).tensors(1)

    def test_has_values_or_their_default(self) -> None:
        some = call(5, None, 0, UNRECORDED)
        assert [some.value(place, 7) for place in (0, 1, 2, 4)] == [5, 7, 0, 7]
        assert some.value(1) is None
        with pytest.raises(UnknownWork, match="value of argument 3"):
            some.value(3, 7)

    def test_has_numbers_of_which_one_stands_for_all(self) -> None:
        assert [call(one).numbers(0, 2) for one in (3, [3], [3, 4], (3, 4))] == [(3, 3), (3, 3), (3, 4), (3, 4)]
        assert call([3, 4, 5]).numbers(0, 3) == (3, 4, 5)
        for lacking in ([1, 2, 3], [], [1, None], "3", None):
            with pytest.raises(UnknownWork, match="argument 0"):
                call(lacking).numbers(0, 2)


class TestShapesThatFit:
    @pytest.mark.parametrize(
        ("shapes", "together"),
        [
            ([(2, 3), (3,)], (2, 3)), ([(3,), (2, 1)], (2, 3)), ([(1, 3), (2, 1)], (2, 3)), ([], ()), ([(), (4,)], (4,)),
            ([(1,), (1, 1), (5, 1)], (5, 1)), ([(0,), (1,)], (0,)), ([(4, 1, 2), (3, 1), (2,)], (4, 3, 2)),
        ],
    )  # fmt: skip
    def test_are_broadcast_from_the_last_dimension(
        self, shapes: list[tuple[int, ...]], together: tuple[int, ...]
    ) -> None:
        assert broadcast(shapes) == together

    def test_of_other_sizes_do_not_fit(self) -> None:
        unfit: list[list[tuple[int, ...]]] = [[(2,), (3,)], [(2, 3), (2, 4)], [(2, 3), (2,)]]
        for shapes in unfit:
            with pytest.raises(UnknownWork, match="fit"):
                broadcast(shapes)


def test_only_operations_on_floating_point_numbers_are_flops() -> None:
    assert (of_floats(call(FLOAT, WHOLE), 5), of_floats(call(WHOLE), 5), of_floats(call(3), 5)) == (5, 0, 0)
    untyped = call(Tensor((2,), ""))
    assert of_floats(untyped, 0) == 0
    with pytest.raises(UnknownWork, match="types"):
        of_floats(untyped, 5)
    assert of_floats(call(Tensor((2,), ""), WHOLE), 5) == 0


@pytest.mark.parametrize(
    ("tensors", "numbers", "result"),
    [
        ("int32 int64", "", "int64"), ("uint8 bool", "", "uint8"), ("int64 float16", "", "float16"),
        ("float16 bfloat16", "", "float32"), ("float16 bfloat16 float64", "", "float64"), ("float32 complex64", "", "complex64"),
        ("float16", "float64", "float16"), ("float16", "int64", "float16"), ("int32", "float64", "float32"),
        ("int32", "int64", "int32"), ("bool", "int64", "int64"), ("float32", "complex128", "complex128"),
        ("bool", "bool", "bool"), ("int8", "bool", "int8"), ("", "int64 float32", "float32"), ("complex64", "float64", "complex64"),
    ],
)  # fmt: skip
def test_a_result_has_the_highest_type_of_its_tensors_and_numbers_count_by_their_kind(
    tensors: str, numbers: str, result: str
) -> None:
    whole = [Tensor((2,), one) for one in tensors.split()]
    assert promoted([*whole, *(Tensor((), one) for one in numbers.split())]) == result


@pytest.mark.parametrize("whole", ["uint8", "int8", "int16", "int32", "int64"])
def test_every_integer_type_is_above_bool_and_below_floating_point_numbers(whole: str) -> None:
    def of(tensor: str, number: str) -> str:
        return promoted([Tensor((2,), tensor), Tensor((), number)])

    assert [of("bool", whole), of(whole, "bool"), of("float16", whole)] == [whole, whole, "float16"]
    assert [of(whole, "float64"), of(whole, "complex64"), of("complex64", whole)] == [
        "float32",
        "complex64",
        "complex64",
    ]
    for other in ("uint8", "int64"):
        assert of(whole, other) == whole


def test_the_type_of_a_result_is_not_known_of_types_that_promotion_does_not_list() -> None:
    for tensors in ([], [Tensor((2,), "float8_e5m2")], [FLOAT, Tensor((2,), "")]):
        with pytest.raises(UnknownWork, match="type of the result"):
            promoted(tensors)
