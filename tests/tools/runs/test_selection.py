"""--kernel, --phase, --layer, --device and --rank: some launches of a run; every command's numbers are of these only."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import tables
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import run
from ncu_tools.runs.run import Run
from ncu_tools.runs.selection import Selection, pattern_of
from tests.conftest import SAMPLES
from tests.support.launches import launch, table

LAUNCHES = [
    ("gemm", "forward", 0, 4), ("relu", "forward", 0, 1), ("gemm", "backward", 0, 8), ("gemm_dgrad", "backward", 1, 2),
    ("adam", None, 1, 1),
]  # fmt: skip


def launches() -> Any:
    return table(
        *(launch(name, ns=ns, phase=phase, device_id=device, module="m") for name, phase, device, ns in LAUNCHES)
    )


@pytest.fixture
def file(tmp_path: Path) -> str:
    noted = with_metadata(launches(), {"schema_version": SCHEMA_VERSION, "notes": ["read so"]})
    write_table(noted, tmp_path / "own.parquet")
    return str(tmp_path / "own.parquet")


def left(only: Selection, of: Run | None = None) -> Run:
    return only.of(of or Run.held("r", launches()))


def names(only: Selection) -> list[str | None]:
    return tables.words(left(only).table, "kernel_name")


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run([*arguments, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


class TestSelectedLaunches:
    def test_meet_all_criteria(self) -> None:
        assert names(Selection((re.compile("gemm"),))) == ["gemm", "gemm", "gemm_dgrad"]
        assert names(Selection((re.compile("^gemm$"),), ("backward",))) == ["gemm"]
        assert names(Selection(phases=("forward", "backward"), devices=(1,))) == ["gemm_dgrad"]

    def test_are_those_of_a_layer_and_of_all_below_it(self) -> None:
        modules = ["net", "net.layer1", "net.layer1.0.conv1", "net.layer10", "net.layer2.0.conv1", None]
        run = Run.held("r", table(*(launch(str(module), module=module) for module in modules)))

        def of(*layers: str) -> list[str | None]:
            return tables.words(left(Selection(layers=layers), run).table, "module")

        assert of("net.layer1") == ["net.layer1", "net.layer1.0.conv1"]
        assert of("net.layer1", "net.layer10") == ["net.layer1", "net.layer1.0.conv1", "net.layer10"]
        assert of("*.conv1") == ["net.layer1.0.conv1", "net.layer2.0.conv1"]
        with pytest.raises(NcuBenchError, match=r"for layer conv1\. Its layers are net, net\.layer1"):
            of("conv1")

    def test_are_of_layers_with_brackets_in_their_names(self) -> None:
        run = Run.held("r", table(launch("a", module="net[0]"), launch("b", module="net0")))
        assert tables.words(left(Selection(layers=("net[0]",)), run).table, "module") == ["net[0]"]

    def test_have_no_names_of_other_kernels(self) -> None:
        found = left(Selection(devices=(1,))).table
        assert tables.codes(found, "kernel_name")[1] == ["gemm_dgrad", "adam", None]

    def test_count_averages_with_all_their_launches_and_failed_ones_never(self) -> None:
        rows = table(launch("a", ns=5, invocations=3), launch("b", ns=5), launch("c", ns=5, failed=True))
        (note,) = left(Selection((re.compile("a"),)), Run.held("r", rows)).notes
        assert "3 of 4 launches with 75.0 % of the time" in note

    def test_match_any_of_several_patterns(self) -> None:
        assert names(Selection((re.compile("relu"), re.compile("adam")))) == ["relu", "adam"]

    def test_have_the_pattern_in_the_name_of_the_report_or_in_that_of_tables(self) -> None:
        run = Run.held(
            "r", table(launch("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT"), launch("void relu<float>(int)"))
        )
        for pattern, place in (("gemm bf16", 0), ("nvjet", 0), ("void relu", 1)):
            found = left(Selection((re.compile(pattern),)), run)
            assert tables.words(found.table, "kernel_name") == tables.words(run.table, "kernel_name")[place : place + 1]

    def test_are_noted_with_their_share_of_the_time(self) -> None:
        (note,) = left(Selection((re.compile("gemm"),), ("backward",))).notes
        assert note.startswith(
            "restricted to kernels with gemm, phase backward: 2 of 5 launches with 62.5 % of the time"
        )

    def test_that_are_missing_for_one_of_several_values_are_noted(self) -> None:
        only = Selection((re.compile("gemm"), re.compile("conv")), ("forward", "optimizer"), devices=(0, 1))
        assert left(only).notes[1:] == ["no launch is left for kernels with conv, for phase optimizer, for device 1"]
        assert len(left(Selection((re.compile("gemm"), re.compile("adam")))).notes) == 1

    def test_keep_the_notes_on_reading_the_run(self, file: str) -> None:
        assert left(Selection(devices=(0,)), Run.in_file(file, Path(file))).notes[0] == "read so"

    @given(st.lists(st.integers(0, 3), min_size=1))
    def test_of_all_devices_make_the_whole(self, devices: list[int]) -> None:
        whole = Run.held("r", table(*(launch(f"k{at}", ns=at, device_id=device) for at, device in enumerate(devices))))
        parts = [left(Selection(devices=(device,)), whole).table for device in set(devices)]
        together = sorted(name or "" for part in parts for name in tables.words(part, "kernel_name"))
        assert together == sorted(f"k{at}" for at in range(len(devices)))

    def test_are_the_same_from_a_file_with_many_row_groups(self, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
        only = Selection((re.compile("gemm"),))
        whole = left(only, Run.in_file(file, Path(file))).table.to_pylist()
        monkeypatch.setattr("ncu_parsers.parquet.reader.ROWS_PER_BATCH", 1)
        assert left(only, Run.in_file(file, Path(file))).table.to_pylist() == whole


class TestAnEmptySelection:
    def test_lists_the_existing_values(self) -> None:
        with pytest.raises(NcuBenchError) as none:
            left(Selection((re.compile("conv"),), devices=(7,)))
        assert "Its kernels are gemm, relu, gemm_dgrad, adam. Its devices are 0, 1." in none.value.paragraph
        with pytest.raises(NcuBenchError, match=r"Its ranks are not known\."):
            left(Selection(ranks=(0,)))

    def test_lists_kernels_with_names_like_the_pattern_first(self) -> None:
        many = table(*(launch(f"kernel_{number}", ns=1) for number in range(20)), launch("softmax", ns=1))
        with pytest.raises(NcuBenchError, match=r"Its kernels are softmax, kernel_0, .* and 13 more\."):
            Selection((pattern_of("sotfmax"),)).of(Run.held("r", many))

    def test_an_invalid_pattern_is_refused_with_the_reason(self) -> None:
        with pytest.raises(WrongUsage, match=r"\( is no regular expression"):
            pattern_of("(")
        with pytest.raises(WrongUsage, match="given no pattern"):
            pattern_of("")


class TestCommands:
    def test_hotspots_has_shares_of_the_selection(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        rows = asked(capsys, "hotspots", file, "--phase", "backward")["rows"]
        assert [(row["kernel"], row["time_share"]) for row in rows] == [("gemm", 0.8), ("gemm_dgrad", 0.2)]

    def test_roofline_draws_the_selection_with_its_title(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        found = asked(capsys, "roofline", file, "--kernel", "gemm", "--device", "0")
        assert [row["kernel"] for row in found["rows"]] == ["gemm"]
        assert found["scene"]["title"] == "own.parquet, kernels with gemm, device 0"

    def test_layers_has_the_launches_of_the_selection(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        found = asked(capsys, "layers", file, "--kernel", "gemm")
        assert found["rows"][0]["launches"] == 3
        assert any(note.startswith("restricted to kernels with gemm") for note in found["notes"])

    def test_kernel_shows_launches_of_the_selection(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = asked(capsys, "kernel", str(SAMPLES / "d01-wide-raw.csv"), "--kernel", "relu_kernel", "--device", "0")
        assert "relu_kernel" in found["kernel"]
        assert any(note.startswith("restricted to kernels with relu_kernel, device 0") for note in found["notes"])

    def test_query_has_launches_of_the_selection(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        found = asked(capsys, "query", file, "SELECT count(*) AS n FROM launches", "--phase", "backward")
        assert found["rows"] == [{"n": 2}]

    def test_skew_and_export_are_of_the_selection(
        self, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = asked(capsys, "skew", file, "--kernel", "gemm", "--by", "rank")
        assert any(note.startswith("restricted to kernels with gemm") for note in found["notes"])
        out = str(tmp_path / "kernels.csv")
        assert asked(capsys, "export", file, "--as", "csv", "--kernel", "relu", "-o", out)["rows"][0]["rows"] == 1

    def test_values_are_separated_by_commas_or_repeated(self, file: str, capsys: pytest.CaptureFixture[str]) -> None:
        by_commas = asked(capsys, "hotspots", file, "--phase", "forward,backward", "--device", "0,1")
        repeated = ["--phase", "forward", "--phase", "backward", "--device", "0", "--device", "1"]
        assert by_commas["rows"] == asked(capsys, "hotspots", file, *repeated)["rows"]
        assert len(by_commas["rows"]) == 3

    def test_compare_applies_it_to_both_runs(
        self, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_table(with_metadata(launches(), {"schema_version": SCHEMA_VERSION}), tmp_path / "new.parquet")
        rows = asked(capsys, "compare", file, str(tmp_path / "new.parquet"), "--kernel", "relu")["rows"]
        assert [row["kernel"] for row in rows if not row["is_total"]] == ["relu"]

    def test_report_makes_a_page_of_the_selection(
        self, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = tmp_path / "page.html"
        assert run(["report", file, "--kernel", "adam", "-o", str(page)]) == 0
        assert "restricted to kernels with adam" in capsys.readouterr().err
        assert "gemm_dgrad" not in page.read_text()

    def test_machines_and_roofline_json_have_no_launches_to_select(
        self, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["roofline", file, "--format", "json"]) == 0
        (tmp_path / "plot.json").write_text(capsys.readouterr().out)
        for drawn in ([str(tmp_path / "plot.json")], ["--machine", "t4"]):
            assert run(["roofline", *drawn, "--kernel", "gemm", "-o", str(tmp_path / "x.svg")]) == 2
            assert "no launches to choose from" in capsys.readouterr().err

    def test_a_sweep_has_no_launches_to_select(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_table(bench_table([{"target": "a", "outcome": "ok", "latency_mean_ns": 1.0}]), tmp_path / "bench.parquet")
        for command in (["roofline", str(tmp_path)], ["compare", str(tmp_path), "--across", "dtype"]):
            assert run([*command, "--kernel", "gemm"]) == 2
            assert "no launches to choose from" in capsys.readouterr().err

    @pytest.mark.parametrize("command", ["hotspots", "roofline"])
    def test_a_selection_cannot_be_combined_with_dask(
        self, file: str, command: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run([command, file, "--kernel", "gemm", "--dask", "local"]) == 2
        assert "Leave out --dask" in capsys.readouterr().err
