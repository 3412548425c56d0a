"""A measured run on another GPU, and what is learnt from runs: arithmetic on a few launches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from ncu_launch.errors import WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli.collecting.estimate import measured_runs
from ncu_tools.cli.tables.carried_picture import scene_of_carried
from ncu_tools.model.expected.carried_run import (
    WITHIN,
    CarriedKernel,
    MeasuredProduct,
    carried_run,
    products_measured,
)
from ncu_tools.model.expected.learning_from_runs import learnt_from_products, products_in_csv
from ncu_tools.model.expected_time.expected_times import expected_times
from ncu_tools.model.expected_time.learnt_times import MEASURED, read, shipped, written
from ncu_tools.model.expected_time.operator_rows import operator_rows
from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.called_here import called_here
from tests.support.launches import launch, table
from tests.support.reports import needs_shared_reports

GEMM = {
    "kernel_name": "gemm", "operator": "aten::mm", "shapes": "[[4096,4096],[4096,4096]]",
    "dtype": '["c10::BFloat16","c10::BFloat16"]', "duration_ns": 400e3, "flops": 2 * 4096.0**3, "least_bytes": 100663296.0,
}  # fmt: skip
ADD = {
    "kernel_name": "add", "operator": "aten::add", "shapes": "[[1000000]]", "dtype": '["float"]', "duration_ns": 102e3,
    "flops": 1e6, "least_bytes": 300e6,
}  # fmt: skip
UNKNOWN = {"kernel_name": "mine", "duration_ns": 50e3}
NCCL = ADD | {"kernel_name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "operator": None}


def carried(*launches: dict[str, object], on: str = "h100-sxm", to: str = "h200") -> list[CarriedKernel]:
    return carried_run(pa.Table.from_pylist(list(launches)), find_machine(on), [find_machine(to)], shipped())


def expected(machine: str) -> float:
    rows = operator_rows({"op": ["gemm"], "dtype": ["bf16"], "m": [4096], "n": [4096], "k": [4096]})
    return float(expected_times(rows, find_machine(machine), shipped()).expected_us[0])


def test_a_product_takes_its_expected_time_there_scaled_by_a_part_of_its_deviation_here() -> None:
    (row,) = carried(GEMM)
    assert row.expected_ns is not None
    off = (400 / expected("h100-sxm")) ** WITHIN
    assert row.expected_ns == pytest.approx(1e3 * expected("h200") * off)
    assert row.low_ns is not None
    assert row.high_ns is not None
    assert row.low_ns < row.expected_ns < row.high_ns


def test_across_families_less_of_it_is_carried() -> None:
    kin, other = carried(GEMM)[0], carried(GEMM, to="b200")[0]
    assert kin.expected_ns is not None
    assert other.expected_ns is not None
    assert other.expected_ns / expected("b200") < kin.expected_ns / expected("h200")


def test_on_the_gpu_that_it_was_measured_on_a_product_takes_what_it_took() -> None:
    row, add, other = carried(GEMM, ADD, GEMM | {"duration_ns": 10e3, "shapes": "[[512,512],[512,512]]"}, to="h100-sxm")
    assert [(one.expected_ns, one.low_ns) for one in (row, add, other)] == [(400e3, None), (102e3, None), (10e3, None)]


def test_launches_that_are_alike_are_one_row_with_their_time_together() -> None:
    (row,) = carried(GEMM, GEMM)
    assert (row.launches, row.time_ns) == (2, 800e3)


def test_another_kernel_takes_the_ratio_of_its_roofs_above_the_launch() -> None:
    (row,) = carried(ADD)
    assert row.expected_ns == pytest.approx(2e3 + 100e3 * 3.35 / 4.8)
    assert (row.bound, row.basis) == ("DRAM", "ratio of roofs")


def test_no_kernel_is_promised_less_time_than_its_operations_take_at_the_peak_of_the_machine() -> None:
    """Bandwidths of an H100 and an A100 lie nearer to each other than their peaks, which bound this kernel."""
    flops = 2 * 4096.0**3
    work = {"flops": flops, "flops_fp32": flops, "dram_bytes": 396e6}
    (row,) = carried({"kernel_name": "sgemm", "duration_ns": 2.648e6} | work, to="a100-sxm4-80gb")
    assert row.low_ns == pytest.approx(flops / 19.5e12 * 1e9)
    assert row.expected_ns == row.high_ns > row.low_ns  # type: ignore[operator]


def test_what_has_no_basis_is_named_and_not_guessed() -> None:
    rows = carried(UNKNOWN, NCCL)
    assert [row.expected_ns for row in rows] == [None, None]
    assert {row.failed for row in rows} == {"work not known", "communication: links between GPUs are not modelled"}


class TestLearning:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        """Products that take twice as long as expected on a B200."""
        sizes = [(2**a, 2**b, 2**c) for a, b, c in ((4, 12, 12), (8, 12, 12), (12, 12, 12), (13, 11, 10), (0, 13, 13))]
        sizes += [(3 * m, n, k) for m, n, k in sizes]
        m, n, k = (list(column) for column in zip(*sizes, strict=True))
        rows = operator_rows({"op": ["gemm"] * len(m), "dtype": ["bf16"] * len(m), "m": m, "n": n, "k": k})
        times = 2 * expected_times(rows, find_machine("b200"), shipped()).expected_us
        lines = [f"gemm,bf16,{a},{b},{c},{us}" for a, b, c, us in zip(m, n, k, times, strict=True)]
        (tmp_path / "mine.csv").write_text("\n".join(["op,dtype,m,n,k,measured_us", *lines]) + "\n", "utf-8")
        return tmp_path / "mine.csv"

    def test_from_products_that_are_twice_as_slow_moves_expected_times_most_of_the_way(self, table: Path) -> None:
        products = products_in_csv(table)
        assert products is not None
        learnt, (told,) = learnt_from_products([(products, find_machine("b200"))], shipped(), "a test")
        assert told["error_before"] == pytest.approx(0.5, abs=0.01)
        assert told["error_after"] < 0.2
        assert read(written(learnt), "mine").entries[0].points == 10

    @pytest.mark.parametrize("dtype", ["fp32", "tf32", "int8"])
    def test_is_of_types_too_that_no_shipped_times_stand_for(self, dtype: str) -> None:
        products = [MeasuredProduct(dtype, 2**m, 4096, 4096, 100.0 * 2**m) for m in range(1, 11)]
        learnt, (told,) = learnt_from_products([(products, find_machine("h100-sxm"))], shipped(), "a test")
        assert (told["dtype"], told["learnt_points"]) == (dtype, 10)
        assert learnt.basis("gemm", find_machine("h100-sxm"), dtype).kind == MEASURED

    def test_knows_how_many_products_a_row_is_and_in_what_type_its_activations_come(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(
            "op,dtype,m,n,k,number,quantised,measured_us\ngemm,fp8,8,16,32,4,1,9\n", "utf-8"
        )
        assert products_in_csv(tmp_path / "a.csv") == [MeasuredProduct("fp8", 32, 16, 32, 9.0, 1.0)]

    def test_from_a_trace_knows_that_a_scaled_product_turns_no_activations(self) -> None:
        scaled = GEMM | {"operator": "aten::_scaled_mm"}
        assert products_measured(pa.Table.from_pylist([scaled]))[0].quantised == 1

    def test_from_too_few_products_is_refused(self) -> None:
        products = products_measured(pa.Table.from_pylist([GEMM]))
        assert products[0][1:] == (4096, 4096, 4096, 400.0, 0.0)
        with pytest.raises(WrongUsage, match="at most 1 products of one type"):
            learnt_from_products([(products, find_machine("b200"))], shipped(), "a test")

    def test_on_a_machine_without_a_peak_of_the_type_says_so(self, table: Path) -> None:
        products = products_in_csv(table)
        assert products is not None
        with pytest.raises(WrongUsage, match="no peak for bf16 is known of gb10"):
            learnt_from_products([(products, find_machine("gb10"))], shipped(), "a test")

    def test_from_a_missing_file_says_that_it_is_missing(self, tmp_path: Path) -> None:
        found = called_here("estimate", "mine.csv", "--learn", "-o", "mine.toml", cwd=tmp_path)
        assert (found.code, found.err.partition(".csv")[2][:15]) == (1, " does not exist")

    def test_writes_a_file_that_estimate_takes(self, table: Path) -> None:
        done = called_here(
            "estimate", "mine.csv", "--learn", "--measured-on", "b200", "-o", "mine.toml", cwd=table.parent
        )
        assert done.code == 0, done.err
        ops = ("estimate", "--ops", "mine.csv", "--machine", "b200", "--format", "csv")
        before, after = (called_here(*ops, *more, cwd=table.parent) for more in ((), ("--learnt", "mine.toml")))
        assert before.code == after.code == 0
        assert before.out != after.out

    def test_says_what_taught_nothing(self, table: Path) -> None:
        with table.open("a", encoding="utf-8") as file:
            file.write("gemm,fp8,64,64,64,9\n")
        done = called_here(
            "estimate", "mine.csv", "--learn", "--measured-on", "b200", "-o", "mine.toml", cwd=table.parent
        )
        assert (
            "1 product of fp8 on b200 taught nothing: that takes 8 of a type, and the machine's peak for it" in done.err
        )

    def test_without_a_file_to_write_is_refused(self, table: Path) -> None:
        done = called_here("estimate", "mine.csv", "--learn", "--measured-on", "b200", cwd=table.parent)
        assert done.code == 2
        assert "--learn writes a file" in done.err


def torchvision_with(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    for module in ("ncu_launch.targets.model_name_check", "ncu_tools.cli.collecting.estimate"):
        monkeypatch.setattr(f"{module}.torchvision_names_unloaded", lambda: names)


def test_a_name_that_is_a_path_too_is_refused_with_how_to_tell_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchvision_with(monkeypatch, ["resnet18"])
    (tmp_path / "resnet18").mkdir()
    done = called_here("estimate", "resnet18", "--machine", "b200", cwd=tmp_path)
    assert done.code == 2
    assert "resnet18 is a path here and the name of a model" in done.err
    assert "./resnet18" in done.err


def test_a_run_is_no_model_where_torchvision_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchvision_with(monkeypatch, [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "gemm:64,64,64,bf16").mkdir()
    assert measured_runs(("run", "mine.csv")) == ("run", "mine.csv")
    with pytest.raises(WrongUsage, match="gemm:64,64,64,bf16 is a path here and the name of a model"):
        measured_runs(("gemm:64,64,64,bf16",))


class TestThePicture:
    def test_has_an_arrow_from_each_measured_kernel_to_each_machine(self) -> None:
        measured_on, there = find_machine("h100-sxm"), [find_machine("b200"), find_machine("h200")]
        rows = carried_run(pa.Table.from_pylist([GEMM, ADD, UNKNOWN]), measured_on, there, shipped())
        scene = scene_of_carried(rows, measured_on, there)
        assert [mark.run for mark in scene.marks] == [0, 0, 1, 1, 2, 2]
        assert [(arrow.start, arrow.end) for arrow in scene.arrows] == [(0, 2), (1, 3), (0, 4), (1, 5)]
        assert scene.not_drawn == 1
        assert {roof.device for roof in scene.roofs} == {measured_on.name, *(machine.name for machine in there)}

    def test_moves_a_kernel_up_by_how_much_faster_it_is_and_never_sideways(self) -> None:
        measured_on, there = find_machine("h100-sxm"), [find_machine("b200")]
        (row,) = rows = carried_run(pa.Table.from_pylist([GEMM]), measured_on, there, shipped())
        here, gone = scene_of_carried(rows, measured_on, there).marks
        assert gone.places == here.places
        assert gone.flops_per_s / here.flops_per_s == pytest.approx(row.speedup)

    def test_is_written_beside_the_table(self, tmp_path: Path) -> None:
        run = ROOT / "sample_reports" / "d01-wide-raw.csv"
        done = called_here("estimate", str(run), "--machine", "b200", "-o", "x.txt", cwd=tmp_path)
        assert done.code == 0, done.err
        assert "expected on b200" in (tmp_path / "x.txt").read_text("utf-8")

    @pytest.mark.parametrize("words", [("resnet18",), ("--ops", "table.csv")])
    def test_is_refused_where_nothing_was_measured(self, words: tuple[str, ...], tmp_path: Path) -> None:
        (tmp_path / "table.csv").write_text("op,dtype,m,n,k\ngemm,bf16,4,4,4\n", "utf-8")
        done = called_here("estimate", *words, "--machine", "b200", "-o", "x.svg", cwd=tmp_path)
        assert done.code == 2
        assert "-o is the picture of a measured run" in done.err


@pytest.mark.parametrize("width", ["60", "80", "120"])
def test_a_table_of_operators_keeps_expected_times_and_interval_at_any_width(
    width: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    header = "op,dtype,m,n,k,note,shapes"
    (tmp_path / "table.csv").write_text(f"{header}\ngemm,bf16,4096,4096,4096,{'long ' * 9},{'1x2 ' * 9}\n", "utf-8")
    head = called_here("estimate", "--ops", "table.csv", "--machine", "b200", cwd=tmp_path).out.splitlines()[0]
    assert [word for word in ("op", "machine", "expected", "from", "to") if word not in head.split()] == []


@needs_shared_reports
def test_a_carried_trace_keeps_operators_and_intervals_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    (trace,) = (SHARED / "reports" / "kineto").glob("*h100__Qwen*")
    head = called_here("estimate", str(trace), "--machine", "b200", cwd=ROOT).out.splitlines()[0].split()
    assert head[:7] == ["kernel", "operator", "time", "machine", "expected", "from", "to"]


def test_a_run_of_a_cpu_is_refused_with_how_a_model_is_estimated(tmp_path: Path) -> None:
    made = table(launch("aten::add", ns=1e5, capability=None))
    for name, value in (("source", "operators"), ("device_name", "Xeon")):
        made = made.set_column(made.column_names.index(name), name, pa.array([value]))
    write_table(with_metadata(made, {"schema_version": SCHEMA_VERSION, "reports": []}), tmp_path / "run.parquet")
    done = called_here("estimate", "run.parquet", "--machine", "b200", cwd=tmp_path)
    assert "was measured on Xeon, and a run is carried from one GPU to another" in done.err
    assert "ncu-bench estimate resnet18" in done.err


def test_kernels_that_gain_much_less_are_named_as_in_the_table() -> None:
    words = ("--machine", "h100-sxm", "--measured-on", "a100-pcie-40gb", "--notes")
    done = called_here("estimate", str(SAMPLES / "d04-long-metrics.csv"), *words, cwd=ROOT)
    named = "triad (2.12 x, DRAM); softmax_warp_forward fp32 (2.08 x, DRAM); elementwise relu fp32 (1.96 x, DRAM)"
    assert f"h100-sxm: 3 kernels gain much less than the run, 9.2 % of the time: {named}" in done.err
