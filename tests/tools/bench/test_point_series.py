"""Columns of points against a chosen one: which column a name means, what separates series, and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table

from ncu_tools.bench.point_series import point_series
from ncu_tools.cli import run
from ncu_tools.report.plot.series_plot import draw_series, is_logarithmic
from tests.support.ran import ran


def row(n: Any, kind: str = "a", latency: float | None = 1e6, **changes: Any) -> dict[str, Any]:
    ok = latency is not None
    return {
        "point": f"f {n} {kind} {changes}", "target": "k.py:f", "device": "cpu", "device_name": "a processor" if ok else None,
        "dtype": "fp32", "autocast": False, "mode": "eager", "channels_last": False, "phase": "forward",
        "outcome": "ok" if ok else "failed", "reason": None if ok else "ValueError: no such size", "log": "",
        "latency_mean_ns": latency, "expected_flops": 2e6 if ok else None,
        "argument_values": {"n": str(n), "kind": kind}, **changes,
    }  # fmt: skip


@pytest.fixture
def sweep(tmp_path: Path) -> str:
    rows = [row(n, kind, 1e3 * n) for kind in "ab" for n in (512, 64, 4096)]
    write_table(bench_table([*rows, row(128, "a", None)]), tmp_path / "bench.parquet")
    return str(tmp_path)


def made(folder: Path, *rows: dict[str, Any], name: str = "bench.parquet") -> str:
    folder.mkdir(exist_ok=True)
    write_table(bench_table(rows), folder / name)
    return str(folder)


class TestQuantities:
    def test_time_is_without_a_profiler_where_points_have_one(self, tmp_path: Path) -> None:
        timed = made(tmp_path / "timed", row(1, profiled_time_ns=9e9))
        assert point_series([timed], "n", ["time"]).ys[0].column == "latency_mean_ns"
        profiled = made(
            tmp_path / "profiled", row(1, latency_mean_ns=None, profiled_time_ns=9e9), name="points.parquet"
        )
        (found,) = point_series([profiled], "n", ["time"]).rows
        assert found["time"] == 9e9

    def test_flops_are_the_counted_ones_where_known_with_a_note(self, tmp_path: Path) -> None:
        path = made(tmp_path / "s", row(1, profiled_flops=3e6, profiled_by="ncu"))
        found = point_series([path], "n", ["flops"])
        assert (found.rows[0]["flops"], found.ys[0].title) == (3e6, "flops in FLOP (profiled_flops)")
        assert found.notes == ["flops is profiled_flops"]

    def test_flops_by_formulas_are_called_so(self, sweep: str) -> None:
        found = point_series([sweep], "n", ["flops"])
        assert any("formulas for each operator, not measured" in note for note in found.notes)

    def test_a_rate_is_a_quotient_of_two_columns(self, sweep: str) -> None:
        found = point_series([sweep], "n", ["flops_per_s"])
        assert found.ys[0].column == "expected_flops / latency_mean_ns"
        assert found.rows[0]["flops_per_s"] == pytest.approx(2e6 / 64e-6)

    def test_the_share_of_dram_is_in_per_cent(self, tmp_path: Path) -> None:
        path = made(tmp_path / "s", row(1, profiled_dram_fraction=0.25))
        found = point_series([path], "n", ["dram_pct"])
        assert (found.rows[0]["dram_pct"], found.ys[0].unit) == (25.0, "%")

    def test_any_column_argument_or_counter_can_be_asked_for(self, tmp_path: Path) -> None:
        path = made(tmp_path / "s", row(1, iterations=7, metric_values={"x__y.sum": 5.0}))
        (found,) = point_series([path], "kind", ["iterations", "x__y.sum"]).rows
        assert (found["kind"], found["iterations"], found["x__y.sum"]) == ("a", 7, 5.0)

    def test_an_unknown_column_is_answered_with_the_most_similar_one(self, sweep: str) -> None:
        with pytest.raises(WrongUsage, match=r"no column flop\. Did you mean flops"):
            point_series([sweep], "n", ["flop"])

    def test_one_that_is_empty_everywhere_is_refused_with_its_columns(self, sweep: str) -> None:
        with pytest.raises(WrongUsage, match=r"No point has dram_pct\. Its columns are profiled_dram_fraction"):
            point_series([sweep], "n", ["dram_pct"])

    def test_a_rate_is_offered_where_its_amount_is_known(self, tmp_path: Path) -> None:
        for name, flops, says in (
            ("known", 2e6, "There are time, flops, flops_per_s, n"),
            ("none", None, "There are time, n"),
        ):
            path = made(tmp_path / name, row(8, expected_flops=flops))
            with pytest.raises(WrongUsage) as told:
                point_series([path], "n", ["memory"])
            assert says in told.value.paragraph

    def test_one_that_is_named_twice_is_one_column(self, sweep: str) -> None:
        found = point_series([sweep], "n", ["time", "time"], ["kind", "kind"])
        assert ([one.name for one in found.ys], found.by) == (["time"], ["kind"])

    @pytest.mark.parametrize(("ys", "by", "option"), [(["time", "n"], [], "-y"), (["time"], ["n"], "--by")])
    def test_the_column_on_x_is_refused_for_another_axis_or_series(
        self, sweep: str, ys: list[str], by: list[str], option: str
    ) -> None:
        with pytest.raises(WrongUsage, match=f"n is named after both -x and {option}"):
            point_series([sweep], "n", ys, by)

    def test_a_text_is_no_height(self, sweep: str) -> None:
        with pytest.raises(WrongUsage, match="kind is no number"):
            point_series([sweep], "n", ["kind"])


class TestSeries:
    def test_are_of_everything_that_differs_sorted_by_x(self, sweep: str) -> None:
        found = point_series([sweep], "n", ["time"])
        assert found.by == ["kind"]
        assert [(row["kind"], row["n"]) for row in found.rows] == [
            ("a", 64), ("a", 128), ("a", 512), ("a", 4096), ("b", 64), ("b", 512), ("b", 4096)
        ]  # fmt: skip

    def test_a_failed_point_is_a_row_with_its_reason_and_no_number(self, sweep: str) -> None:
        (failed,) = (row for row in point_series([sweep], "n", ["time"]).rows if row["outcome"])
        assert (failed["n"], failed["time"], failed["reason"]) == (128, None, "ValueError: no such size")

    def test_points_that_by_does_not_tell_apart_are_noted_and_not_averaged(self, sweep: str) -> None:
        found = point_series([sweep], "n", ["time"], by=["dtype"])
        assert "3 places have several points: they differ in kind, which --by tells apart" in found.notes
        assert sum(row["n"] == 64 for row in found.rows) == 2

    def test_runs_are_told_apart(self, tmp_path: Path) -> None:
        paths = [made(tmp_path / name, row(1)) for name in ("before", "after")]
        assert point_series(paths, "n", ["time"]).by == ["run"]


@pytest.mark.slow
class TestThePicture:
    def test_has_a_panel_per_quantity_with_units_and_a_line_per_series(self, sweep: str) -> None:
        found = point_series([sweep], "n", ["time", "flops"])
        picture = draw_series(found, "svg")
        assert picture is not None
        assert draw_series(found, "svg") == picture  # nothing of it changes by itself
        assert list(found.lines()) == ["a", "b"]
        titled = "<!-- " + ", ".join(found.alike) + " -->"
        assert len(found.alike) > 1
        assert titled in picture.decode()
        assert titled not in (draw_series(found, "svg", title="") or b"").decode()
        for failed in (one for one in found.rows if one["kind"] == "b"):
            failed["time"] = failed["flops"] = None
        assert "<!-- b -->" not in (draw_series(found, "svg") or b"").decode()
        assert "<!-- b -->" in picture.decode()

    def test_of_a_papers_column_has_its_size_and_whole_titles_in_lines(self, sweep: str, tmp_path: Path) -> None:
        done = ran("bench", sweep, "-x", "n", "--size", "column", "-o", str(tmp_path / "s.svg"))
        assert done.exit_code == 0, done.stderr
        picture = (tmp_path / "s.svg").read_text("utf-8")
        assert 'width="252pt" height="352.8pt"' in picture
        said = ran("bench", sweep, "-x", "n", "--size", "huge", "-o", str(tmp_path / "s.svg"))
        assert (said.exit_code, "huge is no size of a picture" in said.stderr) == (2, True)

    def test_is_none_without_a_point(self, tmp_path: Path) -> None:
        path = made(tmp_path / "s", row(1, latency=None), row(2))
        found = point_series([path], "n", ["time"])
        found.rows = found.rows[:1]
        assert draw_series(found, "svg") is None

    def test_takes_texts_as_places_one_after_the_other(self, sweep: str) -> None:
        assert draw_series(point_series([sweep], "kind", ["time"]), "png") is not None

    @pytest.mark.parametrize(("values", "logarithmic"), [
        ([64, 4096], True), ([1.0, 9.0], False), ([1.0, 10.0], True), ([0.0, 100.0], False), ([-1.0, 100.0], False),
        ([], False), ([None, 5.0], False),
    ])  # fmt: skip
    def test_has_a_logarithmic_axis_where_values_above_zero_span_a_decade(
        self, values: list[float | None], logarithmic: bool
    ) -> None:
        assert is_logarithmic(values) is logarithmic

    def test_escapes_names(self, tmp_path: Path) -> None:
        path = made(tmp_path / "s", row(1, "$x_<b>\x1b"), row(2, "c"))
        assert draw_series(point_series([path], "n", ["time"]), "svg") is not None


class TestTheCommand:
    def test_writes_json_with_units_and_the_columns_that_were_meant(
        self, sweep: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["bench", sweep, "-x", "n", "-y", "time,flops", "--by", "kind", "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["columns"]["time"] == "ns"
        assert [one["column"] for one in found["y"]] == ["latency_mean_ns", "expected_flops"]
        assert found["rows"][0] == {
            "kind": "a", "n": 64, "time": 64e3, "flops": 2e6, "latency_low_ns": None, "latency_high_ns": None,
            "outcome": None, "reason": None,
        }  # fmt: skip

    @pytest.mark.parametrize("form", ["text", "csv", "markdown"])
    def test_writes_every_format(self, sweep: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", sweep, "-x", "n", "--format", form]) == 0
        assert "ValueError: no such size" in capsys.readouterr().out

    @pytest.mark.slow
    def test_draws(self, sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", sweep, "-x", "n", "-o", str(tmp_path / "plot.svg"), "--title", "sizes"]) == 0
        assert (tmp_path / "plot.svg").read_bytes().startswith(b"<?xml")
        assert "the picture is" in capsys.readouterr().err
        assert run(["bench", sweep, "-x", "n", "-o", str(tmp_path / "plot.doc")]) == 2

    def test_says_what_has_points_if_there_are_none(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["bench", str(tmp_path), "-x", "n"]) == 1
        assert "holds no points" in capsys.readouterr().err
