"""Rows that are several kernels: rates and a bound only where the work of nearly all of their time is known."""

from __future__ import annotations

import pytest

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import MOSTLY_KNOWN, Hotspots, hotspots
from ncu_tools.roofline.roofline import roofline
from ncu_tools.roofline.scene import scene_from_json
from ncu_tools.roofline.scene_builder import scene_of
from tests.support.launches import launch, sass, table

COUNTED, UNCOUNTED = "ampere_sgemm_128x64_nn", "cutlass_80_tensorop_gemm_of_its_own"
"""Two kernels of the category GEMM."""
A100 = {"Device Name": "NVIDIA A100-SXM4-40GB"}


def two_gemms(share_counted: float, group: str = "category") -> Hotspots:
    """A GEMM with counts for this share of 1 ms, and one without for the rest."""
    counted = launch(COUNTED, sass(ffma=1e6), ns=share_counted * 1e6, dram=1e6, attributes=A100)
    rest = launch(UNCOUNTED, {}, ns=(1 - share_counted) * 1e6, attributes=A100)
    launches = table(counted, rest)
    return hotspots(launches, ceilings_of(launches), group=group)


def test_a_category_whose_work_is_mostly_unknown_has_no_rate_and_no_bound_and_a_note_says_so() -> None:
    found = two_gemms(MOSTLY_KNOWN - 0.2)
    (row,) = found.rows
    assert (row.kernel, row.launches) == ("GEMM", 2)
    assert (row.flops_per_s, row.dram_bytes_per_s, row.arithmetic_intensity) == (None, None, None)
    assert (row.bound, row.bound_fraction, row.headroom_ns) == (None, None, None)
    assert any(note.startswith("no rates and no bound for GEMM: ") and "--by name" in note for note in found.notes)


def test_a_category_whose_work_is_nearly_known_keeps_its_rate() -> None:
    found = two_gemms(MOSTLY_KNOWN + 0.05)
    (row,) = found.rows
    assert row.flops_per_s == pytest.approx(2e6 / ((MOSTLY_KNOWN + 0.05) * 1e-3))
    assert not any(note.startswith("no rates") for note in found.notes)


def test_a_row_of_one_kernel_keeps_the_rate_of_the_launches_that_have_counts() -> None:
    rows = {row.kernel: row for row in two_gemms(0.1, group="name").rows}
    assert rows[COUNTED].flops_per_s == pytest.approx(2e6 / 0.1e-3)
    assert rows[UNCOUNTED].flops_per_s is None


def test_a_kernel_counted_in_some_launches_counts_whole_as_in_a_row_of_its_own() -> None:
    """A recording that begins in the middle of a step knows the operators of later launches alone."""
    counted = launch(COUNTED, sass(ffma=1e6), ns=0.2e6, dram=1e6, attributes=A100)
    launches = table(counted, launch(COUNTED, {}, ns=0.8e6, attributes=A100))
    (row,) = hotspots(launches, ceilings_of(launches), group="category").rows
    assert row.flops_per_s == pytest.approx(2e6 / 0.2e-3)


def test_a_roofline_by_category_has_no_place_for_a_category_that_is_mostly_unknown() -> None:
    counted = launch(COUNTED, sass(ffma=1e6), ns=0.2e6, dram=1e6, attributes=A100)
    launches = table(counted, launch(UNCOUNTED, {}, ns=0.8e6, attributes=A100))
    found = roofline({"run": launches}, group="category")
    assert (found.noun, [point.hotspot.flops_per_s for point in found.points]) == ("category", [None])
    scene = scene_of(found)
    assert (scene.noun, scene.not_drawn, scene.marks) == ("category", 1, [])
    assert scene_from_json(scene.as_json()).noun == "category"
