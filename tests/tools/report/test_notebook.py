"""The Python API: the examples of docs/python.md run as a notebook, and views render safely."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

import ncu_tools
import ncu_tools.report.notebook.profiled_run
from ncu_tools.kernels.kernel_row import GROUPS
from ncu_tools.report.notebook.profiled_run import ProfiledRun
from ncu_tools.report.notebook.views import SourceView
from ncu_tools.report.source_table import COLUMNS, MACHINE_READABLE
from ncu_tools.runs.run import Run
from sample_reports import source_page
from tests.conftest import ROOT, SAMPLES
from tests.support.launches import launch, metric, sass, table
from tests.support.models.models_here import models_run_here
from tests.support.pages.notebook import NOTEBOOK, PAGE, notebook

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script>"
MANUAL = PAGE.read_text("utf-8")
HEAVY = ("numpy", "pandas", "pyarrow", "matplotlib", "duckdb")


def kept(folder: Path, *launches: Launch) -> str:
    """The launches as a run folder."""
    made = with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION, "reports": [], "notes": ["odd"]})
    write_table(made, folder / "launches.parquet")
    return str(folder)


@pytest.fixture
def run(tmp_path: Path) -> ncu_tools.report.notebook.profiled_run.ProfiledRun:
    complete = {**sass(ffma=5e7), "sm__inst_executed_pipe_tensor.sum": metric(0.0)}
    path = kept(
        tmp_path,
        launch(EVIL, complete, ns=2e6, dram=1e6, module="net.a", phase="forward", iteration=0),
        launch("plain", complete, ns=1e6, dram=1e6, module="net.b", phase="backward", iteration=0),
        launch("unknown", ns=1e5),
    )
    return ncu_tools.load(path, machine="a100-sxm4-40gb")


def test_importing_the_package_imports_nothing_heavy() -> None:
    check = f"import sys, ncu_tools; print([name for name in {HEAVY!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    assert said.stdout.strip() == "[]"


class TestTables:
    def test_are_pandas_with_missing_values_as_na(self, run: Any) -> None:
        launches = run.launches
        assert launches["flops"].isna().tolist() == [False, False, True]
        assert launches["iteration"].tolist()[:2] == [0, 0]
        assert str(launches["iteration"].dtype) == "Int32"
        assert launches["kernel_name"].tolist()[0] == EVIL
        assert run.notes == ["odd"]

    def test_of_kernels_have_the_longest_first(self, run: Any) -> None:
        assert run.kernels["kernel"].tolist() == [EVIL, "plain", "unknown"]
        assert run.kernels["bound"].tolist()[0] == "FP32"

    def test_are_copies(self, run: Any) -> None:
        launches = run.launches
        launches["duration_ns"] = 0
        assert run.launches["duration_ns"].sum() == 3.1e6


class TestNotebookViews:
    def test_of_hotspots_escape_names_and_count_hidden_kernels(self, run: Any) -> None:
        view = run.hotspots(by="headroom", top=2, diagnose=True)
        page = view._repr_html_()
        assert "<script>" not in page
        assert page.count("&lt;script&gt;") == 2  # the cell, and the whole name as tooltip
        assert "1 more kernel in .table" in page
        assert len(view.table) == 3
        assert view.table["diagnosis"].tolist()[0].startswith("utilisations were not collected")

    def test_of_hotspots_name_kernels_shortly_and_apart_and_whole_where_the_mouse_is(self) -> None:
        names = [f"void softmax_warp_forward<float, {size}>(float *)" for size in (6, 7)]
        page = (
            ProfiledRun(Run.held("run", table(*(launch(name, {}, ns=1e5) for name in names))), None)
            .hotspots()
            ._repr_html_()
        )
        for name, size in zip(names, (6, 7), strict=True):
            assert f'title="{html.escape(name)}">softmax_warp_forward fp32 ({size})</td>' in page

    def test_are_empty_for_unknown_values(self, run: Any) -> None:
        page = run.hotspots(top=3)._repr_html_()
        assert ">None<" not in page
        assert ">nan<" not in page

    def test_of_layers_draw_and_have_the_tree(self, run: Any) -> None:
        view = run.layers(depth=1)
        assert view._repr_svg_().startswith("<?xml")
        assert view.table["module"].tolist() == ["net", "net.a", "net.b"]
        assert view.table["forward_ns"].isna().tolist() == [False, False, True]
        assert any("outside" in note for note in view.notes)

    def test_of_rooflines_accept_other_runs(self, run: Any) -> None:
        other = ncu_tools.load(str(SAMPLES / "d01-wide-raw.csv"))
        view = run.roofline(other)
        assert view._repr_svg_().startswith("<?xml")
        assert set(view.table["run"]) == {run.name, other.name}

    def test_of_rooflines_hold_each_run_against_its_own_machine(self, run: Any) -> None:
        slow, plain = (ncu_tools.load(run.name, machine=name) for name in ("t4", None))
        table = run.roofline(slow, plain).table
        for name, one in ((run.name, run), (f"{run.name} (2)", slow), (f"{run.name} (3)", plain)):
            fractions = table[table["run"] == name]["bound_fraction"]
            assert fractions.to_list() == pytest.approx(one.kernels["bound_fraction"].to_list(), nan_ok=True)

    def test_of_rooflines_distinguish_runs_of_the_same_name(self, run: Any) -> None:
        view = run.roofline(run, run)
        assert set(view.table["run"]) == {run.name, f"{run.name} (2)", f"{run.name} (3)"}

    def test_can_be_saved_only_as_pictures(self, run: Any, tmp_path: Path) -> None:
        assert run.layers().save(tmp_path / "l.png").read_bytes().startswith(b"\x89PNG")
        with pytest.raises(WrongUsage, match="is no picture"):
            run.layers().save("l.gif")


class TestInside:
    """`run.instructions` and `run.source()` of a folder with a report and its source page."""

    @pytest.fixture
    def inside(self, tmp_path: Path) -> Any:
        shutil.copy(SAMPLES / "d20-source-page.csv", tmp_path)
        shutil.copy(SAMPLES / "d04-long-metrics.csv", tmp_path)
        return ncu_tools.load(tmp_path)

    def test_instructions_are_the_table_of_instructions_in_pandas(self, inside: Any) -> None:
        frame = inside.instructions
        assert len(frame) == len(source_page.LINES)
        assert frame["line"].tolist() == [line.line for line in source_page.LINES]
        assert str(frame["line"].dtype) == "Int32"
        assert frame["samples"].sum() == sum(sum(line.samples.values()) for line in source_page.LINES)

    def test_source_shows_the_hottest_lines_and_keeps_all(self, inside: Any) -> None:
        view = inside.source("row_max", top=2)
        assert isinstance(view, SourceView)
        assert {column.name for column in (*COLUMNS, *MACHINE_READABLE)} <= set(view.table.columns)
        assert len(view.table) == len({line.line for line in source_page.LINES})
        assert view.table["place"][0] == "row_max.cu:14"
        page, text = view._repr_html_(), repr(view)
        assert page.count("<tr>") == 3
        assert "more places in .table" in page
        assert "row_max.cu:14" in text
        assert "long scoreboard" in text

    def test_source_shows_instructions_and_the_text_of_lines(self, inside: Any, tmp_path: Path) -> None:
        (tmp_path / "row_max.cu").write_text("\n" * 13 + f"{EVIL}\n", "utf-8")
        assert inside.source(view="sass").table["sass"][0].startswith("FMNMX R6")
        page = inside.source(source_root=tmp_path)._repr_html_()
        assert "<script>" not in page
        assert "&lt;script&gt;" in page

    def test_without_instructions_says_what_to_collect(self, run: Any) -> None:
        with pytest.raises(NcuBenchError, match="no counts of single instructions") as error:
            run.source()
        assert "--set full" in error.value.paragraph
        with pytest.raises(NcuBenchError, match="no counts of single instructions"):
            _ = run.instructions

    def test_source_refuses_unknown_views_kernels_and_rankings(self, inside: Any) -> None:
        with pytest.raises(WrongUsage, match="Use one of: lines, sass, ptx, functions"):
            inside.source(view="colour")
        with pytest.raises(WrongUsage, match="Use one of: samples, executed, sectors, conflicts"):
            inside.source(by="fame")
        with pytest.raises(NcuBenchError, match="no instructions of the kernel"):
            inside.source("gemm")


class TestARunInACell:
    def test_says_what_it_is_and_shows_its_hottest_kernels(self) -> None:
        run = ncu_tools.load(SAMPLES / "d01-wide-raw.csv")
        head, titles, *lines = repr(run).splitlines()
        assert head == f"{SAMPLES / 'd01-wide-raw.csv'}: NVIDIA A100-PCIE-40GB; 8 launches; 2.856 ms in 6 kernels"
        assert titles.split()[:3] == ["kernel", "launches", "time"]
        assert [line for line in lines if line.startswith("gemm bf16 128x256x32 tn ")]  # by its short name, as in HTML
        assert "void cutlass" not in repr(run)
        assert "1 more kernel: .hotspots()" in lines
        page = run._repr_html_()
        assert "NVIDIA A100-PCIE-40GB; 8 launches" in page
        assert page.count("<tr>") == 6
        assert "1.494 ms" in page

    def test_of_several_devices_names_the_device_of_each_kernel(self, tmp_path: Path) -> None:
        kept(tmp_path, launch("k", ns=5, capability="8.0"), launch("k", ns=7, capability="9.0"))
        run = ncu_tools.load(tmp_path)
        assert "compute capability 9.0, compute capability 8.0; 2 launches; 12 ns in 1 kernel" in repr(run)
        assert re.findall(r"^ *k +compute capability (\S+)", repr(run), re.MULTILINE) == ["9.0", "8.0"]

    def test_escapes_what_names_hold(self, tmp_path: Path) -> None:
        kept(tmp_path, launch(EVIL, ns=5))
        assert "<script>" not in ncu_tools.load(tmp_path)._repr_html_()

    def test_breaks_no_number_from_its_unit(self, tmp_path: Path) -> None:
        run = ncu_tools.load(SAMPLES / "d01-wide-raw.csv")
        views: list[Any] = [run, run.hotspots(), run.compare(run)]
        for cell in re.findall(r"<td[^>]*>[^<]*</td>", "".join(view._repr_html_() for view in views)):
            if re.search(r">[\d.,]+ \S+</td>", cell):
                assert "white-space:nowrap" in cell, cell


class TestAdvise:
    def test_has_a_row_for_each_lever_of_a_kernel_as_the_command_has(self) -> None:
        view = ncu_tools.load(SAMPLES / "h100" / "conflicts.ncu-rep").advise(top=1)
        first = view.table.iloc[0]
        assert (first["lever"], round(first["saves_share"], 2)) == ("pad-shared-memory", 0.36)
        assert first["saves_low"] < first["saves_share"] < first["saves_high"]
        assert set(view.table["lever"]) > {"widen-accesses", "more-in-flight"}
        assert "avoid bank conflicts" in repr(view)
        assert "widen accesses" not in repr(view)
        assert "more levers in .table" in repr(view)

    def test_of_a_recording_is_about_its_steps(self, tmp_path: Path) -> None:
        events = list[dict[str, Any]]()
        for at in range(1, 50):
            events += [
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 200 * at, "dur": 5, "pid": 1, "tid": 1,
                 "args": {"correlation": at}},
                {"ph": "X", "cat": "kernel", "name": "k", "ts": 200 * at + 8, "dur": 10, "pid": 0, "tid": 7,
                 "args": {"correlation": at, "device": 0, "stream": 7}},
            ]  # fmt: skip
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), "utf-8")
        assert "cuda-graphs" in set(ncu_tools.load(path).advise().table["lever"])


class TestCompare:
    def test_sets_the_kernels_of_two_runs_beside_each_other(self, tmp_path: Path) -> None:
        for name, ns in (("before", 10_000), ("after", 20_000)):
            (tmp_path / name).mkdir()
            kept(tmp_path / name, launch("slow", ns=ns), launch("same", ns=5_000))
        view = ncu_tools.load(tmp_path / "before").compare(ncu_tools.load(tmp_path / "after"))
        rows = {row["kernel"]: row for row in view.table.to_dict("records")}
        assert (rows["slow"]["base_time_ns"], rows["slow"]["new_time_ns"], rows["slow"]["growth"]) == (
            10_000,
            20_000,
            1,
        )
        assert rows["same"]["verdict"] == "same"
        assert view.table["kernel"][0] == "slow"
        assert "+100.0 %" in repr(view)
        assert "+100.0 %" in view._repr_html_()

    def test_shows_kernels_by_their_short_names_and_has_full_ones_in_the_table(self) -> None:
        run = ncu_tools.load(SAMPLES / "d01-wide-raw.csv")
        view = run.compare(run)
        assert "gemm bf16 128x256x32 tn " in repr(view)
        assert "void cutlass" not in repr(view)
        assert [name for name in view.table["kernel"] if name.startswith("void cutlass")]

    def test_has_no_time_of_a_kernel_in_the_run_that_lacks_it(self, tmp_path: Path) -> None:
        for name, kernel in (("before", "old"), ("after", "young")):
            (tmp_path / name).mkdir()
            kept(tmp_path / name, launch(kernel, ns=10_000, grid=(1 + len(kernel), 1, 1)), launch("same", ns=5_000))
        view = ncu_tools.load(tmp_path / "before").compare(ncu_tools.load(tmp_path / "after"))
        table = view.table.set_index("kernel")
        assert table.loc[["old", "young"], "verdict"].tolist() == ["gone", "new"]
        assert table.loc["old", ["new_time_ns", "growth"]].isna().all()
        assert table.loc["young", ["base_time_ns", "growth"]].isna().all()

    def test_refuses_runs_of_other_conditions_unless_told(self, tmp_path: Path) -> None:
        for name, capability in (("before", "8.0"), ("after", "9.0")):
            (tmp_path / name).mkdir()
            kept(tmp_path / name, launch("k", ns=5, capability=capability))
        before, after = (ncu_tools.load(tmp_path / name) for name in ("before", "after"))
        with pytest.raises(NcuBenchError, match=r"compute capability.*all the same: anyway=True") as refused:
            before.compare(after)
        assert "--" not in str(refused.value)  # no option of the command line
        assert len(before.compare(after, anyway=True).table) == 2

    def test_refuses_the_name_of_a_run_and_says_how_to_load_it(self) -> None:
        run = ncu_tools.load(SAMPLES / "d01-wide-raw.csv")
        for view in (run.compare, run.roofline):
            with pytest.raises(
                WrongUsage, match=r"'new\.csv' is not a run\. Load it first: ncu_tools\.load\('new\.csv'\)"
            ):
                view("new.csv")  # type: ignore[arg-type]


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
class TestEstimate:
    def test_has_a_row_for_each_machine_and_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        models_run_here(monkeypatch)
        view = ncu_tools.estimate("gemm:256,256,256,fp32", machine="t4,h100-sxm", batch_size=1)
        assert view.table["machine"].tolist() == ["t4", "h100-sxm"]
        assert view.table["flops"].tolist() == [2 * 256**3] * 2
        assert "gemm:256,256,256,fp32" in repr(view)

    def test_refuses_names_that_are_none(self) -> None:
        with pytest.raises(WrongUsage, match="dtype='fp99' is not known"):
            ncu_tools.estimate("resnet18", dtype="fp99")
        with pytest.raises(WrongUsage, match="h100"):
            ncu_tools.estimate("resnet18", machine="h100-sxn")


class TestMistakes:
    def test_in_options_list_the_valid_values(self, run: Any) -> None:
        with pytest.raises(WrongUsage, match="Use one of: time, headroom, flops, dram"):
            run.hotspots(by="fame")
        with pytest.raises(WrongUsage, match="Use one of: name, short, grid, nvtx"):
            run.roofline(group="colour")
        for view, option in ((run.hotspots, "top"), (run.layers, "depth"), (run.source, "top")):
            with pytest.raises(WrongUsage, match=rf"{option}=-1 is too small\. The least is 0"):
                view(**{option: -1})

    @pytest.mark.parametrize("group", GROUPS)
    def test_in_groups_are_avoided_by_the_docstring(self, run: Any, group: str) -> None:
        assert group in str(type(run).hotspots.__doc__)
        assert len(run.hotspots(group=group).table)

    def test_of_layers_of_a_report_without_modules_are_explained(self) -> None:
        with pytest.raises(NcuBenchError, match=r"has no layers\. No launch knows its module"):
            ncu_tools.load(SAMPLES / "d01-wide-raw.csv").layers()


def test_the_manual_documents_these_names_and_no_more() -> None:
    named = set(re.findall(r"`(?:ncu_tools|run|view)\.(\w+)", MANUAL.partition("These are all")[0]))
    assert named == {
        "load", "profile", "name", "notes", "folder", "launches", "kernels", "hotspots", "roofline", "layers", "table", "save",
        "instructions", "source", "range", "timeline", "part", "kernel", "compare", "estimate", "expected_times",
        "advise",
    }  # fmt: skip
    public = {name for name in dir(ncu_tools.report.notebook.profiled_run.ProfiledRun) if not name.startswith("_")}
    of_others = {
        "name", "notes", "folder", "load", "profile", "kernel", "range", "table", "part", "save", "estimate", "expected_times",
    }  # fmt: skip
    assert public | of_others == named


def test_the_notebook_of_the_docs_has_the_cells_of_the_page() -> None:
    """Written anew by python -m tests.update_expectations."""
    assert NOTEBOOK.read_text("utf-8") == notebook()


@pytest.mark.skipif(find_spec("nbclient") is None or find_spec("ipykernel") is None, reason="nbclient is not installed")
def test_the_notebook_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real kernel executes every cell in order; views render as HTML and SVG, and inline pictures still work."""
    import nbformat
    from nbclient import NotebookClient

    for variable in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    kept(tmp_path, launch("k", sass(ffma=1), ns=5, dram=7, module="net.a", phase="backward", iteration=0))
    (tmp_path / "run").mkdir()
    (tmp_path / "launches.parquet").rename(tmp_path / "run" / "launches.parquet")
    (tmp_path / "sample_reports").symlink_to(SAMPLES)
    (tmp_path / "docs").mkdir()
    cells = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(cells, timeout=60, resources={"metadata": {"path": str(tmp_path / "docs")}}).execute()
    shown: list[dict[str, Any]] = [
        next((output["data"] for output in cell["outputs"] if output["output_type"] == "execute_result"), {})
        for cell in cells["cells"][2:]
    ]
    assert shown[0]["text/plain"].startswith("sample_reports/d01-wide-raw.csv: ")
    assert "sgemm_tiled" in shown[0]["text/html"]
    assert "text/html" in shown[3]
    assert "avoid bank conflicts" in shown[4]["text/plain"]
    assert shown[5]["image/svg+xml"].lstrip().startswith(("<?xml", "<svg"))
    assert (tmp_path / "roofline.png").stat().st_size > 5000
    assert shown[7]["image/svg+xml"]
    assert "net.a" in shown[8]["text/plain"]
