"""The note on points that have no place on a roofline."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.roofline.roofline import on_undrawn


def spot(kernel: str, time_ns: float | None, **values: Any) -> Hotspot:
    """A kernel of which only this is known."""
    unknown = {field.name: None for field in fields(Hotspot)}
    return Hotspot(**{**unknown, "kernel": kernel, "launches": 1, "time_total_ns": time_ns, "work": {}, **values})


def test_the_share_is_of_the_time_of_all_points_also_where_they_are_of_several_runs() -> None:
    undrawn = [spot("aten::copy_", 30.0, time_share=0.9, flops=0), spot("aten::copy_", 10.0, time_share=0.9, flops=0)]
    every = [*undrawn, spot("aten::mm", 60.0, time_share=0.1)]
    assert on_undrawn(undrawn, every, "operators") == (
        "2 of 3 operators have no place on the plot (40.0 % of the time); no FLOPs: aten::copy_, 1 more"
    )


def test_operators_without_flops_and_unknown_ones_are_told_apart() -> None:
    undrawn = [spot("aten::fill_", 1.0, flops=0), spot("aten::sort", 3.0)]
    note = on_undrawn(undrawn, undrawn, "operators")
    assert note.endswith("; no FLOPs (25.0 %): aten::fill_; FLOPs, bytes or time unknown (75.0 %): aten::sort")


def test_kernels_are_counted_where_others_lack_something_else_and_not_named() -> None:
    kernel, copy = spot("void kernel<float>(int)", 1.0), spot("void copy<float>(int)", 1.0, flops=0)
    assert on_undrawn([kernel], [kernel], "kernels").endswith("; FLOPs, bytes or time unknown")
    both = on_undrawn([kernel, copy], [kernel, copy], "kernels")
    assert both.endswith("; no FLOPs (50.0 %): 1; FLOPs, bytes or time unknown (50.0 %): 1")


def test_the_share_is_left_out_where_a_time_is_not_known() -> None:
    assert "of the time" not in on_undrawn([spot("aten::sort", None)], [spot("aten::sort", None)], "operators")


def test_categories_are_named_as_operators_are() -> None:
    undrawn = [spot("embedding / gather", 1.0), spot("copy", 1.0)]
    assert on_undrawn(undrawn, undrawn, "categories").startswith("2 of 2 categories have no place on the plot")
    assert "embedding / gather, copy" in on_undrawn(undrawn, undrawn, "categories")
