"""Runs summed per launch signature: read in batches or whole, comparisons are the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import SCHEMA_VERSION, list_codes, with_metadata
from ncu_parsers.sources import memory

from ncu_tools.compare.compare_kernels import Comparison, compare
from ncu_tools.compare.comparison_sums import SignatureSums, signature_sums_of_run
from ncu_tools.compare.run_conditions import Observed, conditions_of
from ncu_tools.kernels.matching.launch_signatures import launches_of, signatures_in
from ncu_tools.numbers.statistics import Moments
from ncu_tools.runs.loading import on_disk
from ncu_tools.runs.partition_sums import AnySums
from tests.support.launches import launch, metric, sass, table, taken

VALUES = st.one_of(st.just(math.nan), st.floats(1e-3, 1e6))


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    attributes: dict[str, Any] = {
        "grid": draw(st.sampled_from([None, (1, 1, 1), (8, 2, 1)])),
        "block": draw(st.sampled_from([(64, 1, 1), (128, 1, 1)])),
        "dram": draw(st.sampled_from([None, 100.0, 250.0])),
        "nvtx_path": draw(st.sampled_from([None, ["forward"], ["forward", "iteration 1"], ["forward", "iteration 2"]])),
        "failed": draw(st.sampled_from([False, False, False, True])),
    }
    name = draw(st.sampled_from(["gemm<float>", "gemm<double>", "relu", "copy"]))
    ns = draw(st.one_of(st.none(), st.floats(10, 1e6)))
    return launch(name, sass(ffma=draw(st.integers(0, 50))), ns=ns, **attributes)


def in_pieces(kind: Callable[[], AnySums], found: pa.Table, cuts: list[int], *, merged: bool) -> AnySums:
    """Sums of launches added in batches, one after the other, or each separately and merged."""
    edges = [0, *sorted({cut % (len(found) + 1) for cut in cuts}), len(found)]
    result = kind()
    for begin, end in pairwise(edges):
        piece = kind() if merged else result
        piece.add(found.slice(begin, end - begin))
        if merged:
            result.merge(piece)
    return result


def compared(base: SignatureSums, new: SignatureSums) -> Comparison:
    return compare(base, new, (conditions_of(base.observed), conditions_of(new.observed)))


def numbers(comparison: Comparison) -> list[object]:
    """The result of a comparison, with numbers rounded so that the order of sums does not matter."""

    def rounded(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.8g}")

    return [
        (one.pair, {
            name: (rounded(change.base), rounded(change.new), rounded(change.low), rounded(change.high), change.basis)
            for name, change in one.changes.items()
        })
        for one in (*sorted(comparison.kernels, key=lambda kernel: kernel.pair.kernel), comparison.total)
    ]  # fmt: skip


class TestSignatureSums:
    @given(st.lists(launches(), min_size=1, max_size=12), st.lists(st.integers(0, 12), max_size=3), st.booleans())
    @pytest.mark.slow
    def test_in_batches_or_merged_compare_like_the_whole_run(
        self, found: list[Launch], cuts: list[int], merged: bool
    ) -> None:
        whole = table(*found)
        apart = in_pieces(SignatureSums, whole, cuts, merged=merged)
        other = taken(SignatureSums, whole.slice(0, (len(whole) + 1) // 2))
        assert numbers(compared(apart, other)) == numbers(compared(taken(SignatureSums, whole), other))
        assert apart.observed.failed == sum(one.failed for one in found)

    @given(st.lists(launches(), min_size=1, max_size=12))
    @pytest.mark.slow
    def test_have_each_launch_signature_once_in_order(self, found: list[Launch]) -> None:
        whole = table(*found)
        side = launches_of(whole)
        each = list(zip((side.names[code] for code in side.name_codes), side.shapes, side.ranges, strict=True))
        codes, works = signatures_in(whole)
        assert [tuple(works[code]) for code in codes.tolist()] == each
        assert list(map(tuple, works)) == list(dict.fromkeys(each))

    def test_of_a_run_larger_than_memory_are_computed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = table(*(launch(f"kernel {at % 3}", sass(ffma=at), ns=100.0 + at) for at in range(30)))
        path = tmp_path / "launches.parquet"
        write_table(with_metadata(whole, {"schema_version": SCHEMA_VERSION, "notes": ["it rained"]}), path)
        run = on_disk(str(path))
        assert run is not None
        monkeypatch.setattr(memory, "limit", lambda: 100)
        works = signature_sums_of_run(run)
        assert [work.name for work in works.titles] == ["kernel 0", "kernel 1", "kernel 2"]
        assert list(works.reports) == ["it rained"]
        assert numbers(compared(works, works)) == numbers(
            compared(taken(SignatureSums, whole), taken(SignatureSums, whole))
        )


class TestMoments:
    @given(st.lists(st.tuples(VALUES, st.integers(0, 4)), min_size=1, max_size=20), st.integers(0, 20))
    def test_of_parts_merge_to_those_of_the_whole(self, drawn: list[tuple[float, int]], cut: int) -> None:
        values, groups = np.array([value for value, _ in drawn]), np.array([group for _, group in drawn], np.int64)
        whole = Moments.of(values, groups, 5)
        cut = min(cut, len(values))
        parts = Moments.of(values[:cut], groups[:cut], 5).behind(
            Moments.of(values[cut:], groups[cut:], 5), np.arange(5), 5
        )
        pairs = np.array([0, 0, 1, 1, 2])
        for one, other in ((parts, whole), (whole.joined(pairs, 3), Moments.of(values, pairs[groups], 3))):
            assert one.size.tolist() == other.size.tolist()
            np.testing.assert_allclose(one.total, other.total, rtol=1e-12)
            np.testing.assert_allclose(one.squares, other.squares, rtol=1e-9, atol=1e-6)


class TestObserved:
    def test_clocks_have_a_median_to_four_digits_in_any_order_of_launches(self) -> None:
        clocks = [1.410049e9, 1.2e9, 1.98e9, 1.410051e9, 1.1e9]
        whole = table(*(launch("kernel", ns=1e6) for _ in clocks))
        place = whole.schema.get_field_index("sm_clock_hz")
        whole = whole.set_column(place, whole.schema.field(place), arrays.floats(np.array(clocks)))
        merged = taken(Observed, whole.slice(0, 2))
        merged.merge(taken(Observed, whole.slice(2)))
        assert merged.median_clock == taken(Observed, whole).median_clock == pytest.approx(1.41e9, rel=1e-12)
        assert taken(Observed, table(launch("kernel"))).median_clock is None

    def test_launches_too_short_to_show_their_clock_have_none(self) -> None:
        clock = {"sm__cycles_elapsed.avg.per_second": metric(0.95e9, "hz")}
        assert taken(Observed, table(launch("kernel", clock, ns=2400))).median_clock is None
        assert taken(Observed, table(launch("kernel", clock, ns=240_000))).median_clock == pytest.approx(0.95e9)


class TestListCodes:
    @given(st.lists(st.one_of(st.none(), st.lists(st.integers(-5, 5), max_size=3))), st.integers(0, 5))
    def test_represent_the_lists_of_a_column(self, lists: list[list[int] | None], start: int) -> None:
        column = pa.chunked_array([arrays.integer_lists(lists).slice(start), arrays.integer_lists(lists)])
        codes, values = list_codes(pa.table({"grid": column}), "grid")
        expected = [None if one is None else tuple(one) for one in (*lists[start:], *lists)]
        assert [values[code] for code in codes.tolist()] == expected
        assert len(values) == len(set(values))

    def test_number_the_lists_of_a_column_and_are_none_of_a_missing_one(self) -> None:
        paths = pa.table({"nvtx_path": pa.chunked_array([pa.array([["a", "b"], None, ["a", None], ["a", "b"]])])})
        codes, values = list_codes(paths, "nvtx_path")
        assert [values[code] for code in codes.tolist()] == [("a", "b"), None, ("a", None), ("a", "b")]
        codes, values = list_codes(paths, "grid")
        assert [values[code] for code in codes.tolist()] == [None] * 4
