"""Whether two runs did the same work: every kernel as often, with the same grids."""

from __future__ import annotations

import pyarrow as pa

from ncu_tools.compare.comparison_sums import SignatureSums
from ncu_tools.compare.same_work import NOT_THE_SAME_WORK, OtherWork, other_work
from ncu_tools.kernels.matching.kernel_pairs import pair_kernels
from tests.support.launches import launch, table, taken


def between(base: pa.Table, new: pa.Table) -> OtherWork:
    ours, theirs = taken(SignatureSums, base), taken(SignatureSums, new)
    return other_work(pair_kernels(ours.signatures, theirs.signatures), ours, theirs)


def gemms(count: int, grid: int = 8) -> pa.Table:
    launches = [launch("gemm", ns=10.0, grid=(grid, 1, 1), block=(128, 1, 1)) for _ in range(count)]
    return table(*launches, launch("relu", ns=5.0, grid=(1, 1, 1), block=(64, 1, 1)))


def test_the_same_launches_are_the_same_work_whatever_their_times() -> None:
    found = between(gemms(2), gemms(2))
    assert not found
    assert str(found) == ""


def test_a_kernel_launched_more_often_is_other_work_and_can_be_gated_per_launch() -> None:
    found = between(gemms(2), gemms(3))
    assert found.kernels == ["2 -> 3 launches of gemm"]
    assert str(found) == f"{NOT_THE_SAME_WORK}: 2 -> 3 launches of gemm"
    assert found.refusal.advice("dram_bytes>2%") == (
        'Gate kernels per launch, as --fail-on "any:dram_bytes>2%" or "kernel:gemm:dram_bytes>2%", or add --anyway to '
        "judge the sums."
    )


def test_another_grid_of_the_same_kernel_is_other_work() -> None:
    assert between(gemms(2), gemms(2, grid=16)).kernels == ["another grid, block or range of gemm"]


def test_a_kernel_that_only_one_run_has_is_other_work_that_no_gate_on_it_can_judge() -> None:
    found = between(table(launch("copy", grid=(1, 1, 1))), table(launch("copy", grid=(1, 1, 1)), launch("fill")))
    assert found.kernels == ["0 -> 1 launches of fill"]
    assert found.refusal.instead == "kernel:copy:"


def test_copies_and_kernels_of_templates_are_named_as_tables_name_them() -> None:
    """The short name of a copy was "Device-to-Device]", and that of every functor "elementwise_kernel"."""
    name = "void at::native::elementwise_kernel<128, 2, at::native::CUDAFunctor_add<float>>(int, T2)"
    launches = [launch(one, ns=1.0) for one in ("[CUDA memcpy Device-to-Device]", name)]
    found = between(table(*launches), table(*launches, *(launch(one.kernel_name, ns=1.0) for one in launches)))
    assert found.kernels == [
        "1 -> 2 launches of [CUDA memcpy Device-to-Device]",
        "1 -> 2 launches of elementwise add fp32",
    ]
