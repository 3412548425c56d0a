"""Which counted launches a launch of a timeline is held against: the keys from strict to loose, written out plainly."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import short_name

from ncu_tools.kernels.matching.launch_signatures import KEYS, Key, LaunchSignatures, launches_of, match, signatures_in
from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters, is_bare, normalised_name
from tests.support.launches import table

SMALL, LARGE, BLOCK = (8, 1, 1), (64, 1, 1), (128, 1, 1)


def kernel(name: str = "gemm", grid: Any = SMALL, path: Any = None, operation: str = "kernel", **others: Any) -> Launch:
    block = None if grid is None else BLOCK
    return Launch(name, grid=grid, block=block, nvtx_path=path, attributes={"operation": operation}, **others)


def side(*launches: Launch) -> LaunchSignatures:
    return launches_of(table(*launches))


kernels = st.builds(
    kernel,
    st.sampled_from(["add", "void add<int>(int)", "void add<float>(float*)", "ns::add(int)", "mul"]),
    st.sampled_from([None, SMALL, LARGE]),
    st.sampled_from([None, (), ("a",), ("iteration 3", "a"), ("b",)]),
    st.sampled_from(["kernel", "kernel", "kernel", "memcpy"]),
)
lists = st.lists(kernels, min_size=1, max_size=6)


def value(key: Key, launch: Launch) -> tuple[Hashable, ...] | None:
    """What a key compares of a launch; None where it is not known, and of copies, which match nothing."""
    path = None if launch.nvtx_path is None else tuple(one for one in launch.nvtx_path if one != "iteration 3")
    parts: dict[str, Hashable] = {
        "name": normalised_name(launch.kernel_name),
        "function": drop_parameters(launch.kernel_name),
        "short": short_name(launch.kernel_name),
        "shape": (launch.grid, launch.block) if launch.grid else None,
        "range": path,
    }
    found = tuple(parts[name] for name in key.parts)
    return None if None in found or launch.attributes["operation"] == "memcpy" else found


def asks(key: Key, launch: Launch) -> bool:
    """Whether a launch is what a key asks one of the two to be: of a bare name, without a shape."""
    return (is_bare(launch.kernel_name) or not key.bare) and (launch.grid is None or not key.shapeless)


def counted_for(launch: Launch, ours: list[Launch]) -> tuple[int, set[int]]:
    """The place of the strictest key that a launch shares with counted ones, and which these are; -1 and none."""
    for place, key in enumerate(KEYS):
        known = value(key, launch)
        shared = {at for at, one in enumerate(ours) if known is not None and value(key, one) == known}
        of_ours = {at for at in shared if asks(key, ours[at])}
        if of_ours or (shared and asks(key, launch)):
            return place, of_ours or shared
    return -1, set()


@given(lists, lists)
def test_a_launch_takes_the_strictest_key_that_it_shares_and_every_counted_launch_that_has_it(
    ours: list[Launch], theirs: list[Launch]
) -> None:
    found = match(side(*ours), side(*theirs))
    for row, launch in enumerate(theirs):
        members = {} if found.group[row] < 0 else set(found.members[found.member_group == found.group[row]].tolist())
        assert (found.key[row], set(members)) == counted_for(launch, ours)


def test_launches_meet_by_every_key_that_there_is() -> None:
    for place, (one, other) in enumerate(
        [
            (kernel("a", path=("x",)), kernel("a", path=("x",))),
            (kernel("a", path=("x",)), kernel("a", path=("y",))),
            (kernel("void a<1>(int)"), kernel("void a<1>(float)")),
            (kernel("a"), kernel("void a<1>(float)")),
            (kernel("void a<1>(int)", None), kernel("void a<1>(int)")),
            (kernel("void a<1>(int)", None), kernel("void a<1>(float)")),
            (kernel("a", None), kernel("void a<1>(float)")),
        ]
    ):
        for ours, theirs in ((one, other), (other, one)):
            assert match(side(ours), side(theirs)).key.tolist() == [place], KEYS[place].title


class TestPartners:
    """The counted launch that is the equal of a launch by its place in the order."""

    def test_are_the_first_of_the_first_the_second_of_the_second_in_each_group(self) -> None:
        ours = side(kernel("a"), kernel("b"), kernel("a"), kernel("b"))
        theirs = side(kernel("b"), kernel("b"), kernel("a"), kernel("a"))
        assert match(ours, theirs).partner.tolist() == [1, 3, 0, 2]

    def test_are_none_where_the_sides_have_not_equally_many(self) -> None:
        found = match(side(kernel(), kernel(), kernel("b")), side(kernel(), kernel("b")))
        assert found.partner.tolist() == [-1, 2]

    @pytest.mark.parametrize("others", [{"process_id": 2}, {"device_id": 2}, {"invocations": 3}], ids=str)
    def test_are_none_across_processes_and_devices_and_for_averages(self, others: dict[str, Any]) -> None:
        here: dict[str, Any] = {"process_id": 1, "device_id": 1}
        apart = [kernel(**here), kernel(**{**here, **others})]
        together = [kernel(**here), kernel(**here)]
        assert match(side(*together), side(*together)).partner.tolist() == [0, 1]
        assert match(side(*apart), side(*together)).partner.tolist() == [-1, -1]
        assert match(side(*together), side(*apart)).partner.tolist() == [-1, -1]

    def test_of_one_group_do_not_depend_on_where_another_ran(self) -> None:
        first: dict[str, Any] = {"device_id": 0}
        second: dict[str, Any] = {"device_id": 1}
        both = [kernel("a", **first), kernel("a", **first), kernel("b", **first), kernel("b", **second)]
        assert match(side(*both), side(*both)).partner.tolist() == [0, 1, -1, -1]
        on_the_second = [kernel("a", **second), kernel("b", **first)]
        assert match(side(*on_the_second), side(*on_the_second)).partner.tolist() == [0, 1]


class TestSignatures:
    def test_of_launches_say_what_is_known(self) -> None:
        found = side(kernel("void f<1>(int)", path=("iteration 3", "a")), kernel("f", None), kernel(operation="memset"))
        assert found.bare.tolist() == [False, True, True]
        assert found.shapeless.tolist() == [False, True, False]
        assert found.ranges == [("a",), None, None]
        assert found.is_kernel.tolist() == [True, True, False]
        assert found.shapes == [(*SMALL, *BLOCK), None, (*SMALL, *BLOCK)]

    def test_of_a_grid_without_a_block_are_without_a_shape(self) -> None:
        for grid, block in ((SMALL, None), (None, BLOCK)):
            launches = table(Launch("f", grid=grid, block=block))
            assert launches_of(launches).shapes == [None]
            assert signatures_in(launches)[1][0].shape is None

    def test_of_kernels_without_a_name_have_a_question_mark(self) -> None:
        nameless = table(kernel("f"), kernel("g"))
        place = nameless.schema.get_field_index("kernel_name")
        column = nameless.column(place).cast("string").to_pylist()
        nameless = nameless.set_column(place, "kernel_name", [[column[0], None]])
        assert launches_of(nameless).names == ["f", "?"]
        assert [work.name for work in signatures_in(nameless)[1]] == ["f", "?"]

    def test_of_works_leave_out_what_numbers_an_iteration(self) -> None:
        _, works = signatures_in(table(kernel(path=("ProfilerStep#7", "a")), kernel(path=None), kernel(path=())))
        assert [work.range for work in works] == [("a",), None, ()]
