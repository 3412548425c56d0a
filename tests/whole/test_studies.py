"""The six studies of docs/dev/studies: each small, through its own commands, and the commands and figures of its page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from ncu_launch.bench.latency_statistics import summed_up
from ncu_launch.targets.models import build
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_bench
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table

from ncu_tools.cli import cli
from tests.conftest import ROOT
from tests.support.models.models_here import models_run_here
from tests.support.nightly import by_day

pytestmark = pytest.mark.slow

STUDIES = ROOT / "docs" / "dev" / "studies"
PAGES = sorted(STUDIES.glob("s[1-6]-*.md"))
QUICK = ("--max-time", "0.05", "--warmup", "1", "--on", "cpu")
NETS = """
import torch
from torch import nn

def net(batch_size, width=8):
    layers = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3))
    return layers, torch.randn(batch_size, 3, 16, 16)
def net16(batch_size):
    return net(batch_size, 16)
def net24(batch_size):
    return net(batch_size, 24)
def net32(batch_size):
    return net(batch_size, 32)
def net40(batch_size):
    return net(batch_size, 40)
"""
RESNET_WITH_INPUT_GRADIENT = """
import torch
from ncu_launch.targets.torchvision_compat import import_torchvision

def resnet18(batch_size):
    images = torch.randn(batch_size, 3, 224, 224, requires_grad=True)
    return import_torchvision().models.resnet18(), images
"""

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (the extra models)")
needs_torchvision = pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")


@pytest.fixture(autouse=True)
def _models_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("torch") is not None:
        models_run_here(monkeypatch)


def out_of(*arguments: str | Path) -> str:
    """The standard output of a command, which must succeed."""
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


def document_of(*arguments: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out_of(*arguments, "--format", "json"))
    return found


def rows_of(*arguments: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document_of(*arguments)["rows"]
    return found


def blocks_of(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands_in(block: str) -> list[list[str]]:
    """The arguments of every ncu-bench command of a block."""
    parts = [part for line in block.splitlines() for part in line.split(" && ") if "ncu-bench " in part]
    return [shlex.split(part.partition("ncu-bench ")[2]) for part in parts]


class TestThePages:
    def test_exist_for_each_study_and_the_index_links_to_them(self) -> None:
        index = (STUDIES / "README.md").read_text("utf-8")
        assert [page.name[:2] for page in PAGES] == ["s1", "s2", "s3", "s4", "s5", "s6"]
        assert all(f"({page.name})" in index for page in PAGES)

    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
    def test_start_with_one_or_two_commands_and_their_output(self, page: Path) -> None:
        first = re.search(r"^```(\w+)\n(.*?)^```\n\s*^```(\w+)$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        assert first is not None
        assert (first[1], first[3]) == ("sh", "text")
        assert 1 <= len(commands_in(first[2])) <= 2

    @pytest.mark.parametrize("page", [*PAGES, STUDIES / "README.md"], ids=lambda page: page.stem)
    def test_have_only_commands_with_existing_options(self, page: Path) -> None:
        for words in (words for block in blocks_of(page, "sh") for words in commands_in(block)):
            command = cli.get_command(click.Context(cli), words[0])
            assert command is not None, words
            command.make_context(words[0], words[1:])

    @pytest.mark.parametrize("page", [*PAGES, STUDIES / "README.md"], ids=lambda page: page.stem)
    def test_have_only_links_that_lead_to_a_file(self, page: Path) -> None:
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text("utf-8")):
            assert (page.parent / target).is_file(), target

    @pytest.mark.nightly
    @needs_transformers
    def test_show_the_current_estimates_of_a_language_model(self) -> None:
        page = next(page for page in PAGES if page.stem.startswith("s6"))
        (command,) = [
            words for block in blocks_of(page, "sh") for words in commands_in(block) if words[0] == "estimate"
        ]
        shown = [line.split() for line in blocks_of(page, "text")[2].splitlines()]
        assert [line.split() for line in out_of(*command).splitlines()] == shown

    @needs_torchvision
    def test_show_the_current_output_of_commands_that_run_nothing(self) -> None:
        page = next(page for page in PAGES if page.stem.startswith("s4"))
        printed = [out_of(*words) for words in commands_in(blocks_of(page, "sh")[0])]
        shown = blocks_of(page, "text")[0]
        assert [line.split() for line in shown.splitlines()] == [
            line.split() for one in printed for line in one.splitlines()
        ]


# -------------------------------------------------------------------------------------------------------- the sweeps


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real sweep of five networks at batch 1, and of the first at three batches, in bf16 and as TorchScript.

    It also went on twice, where it had stopped.
    """
    folder = tmp_path_factory.mktemp("sweep")
    file = folder / "nets.py"
    file.write_text(NETS, encoding="utf-8")
    names = [f"{file}:{name}" for name in ("net", "net16", "net24", "net32", "net40")]
    into = (*QUICK, "-o", folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        models_run_here(patch)
        out_of("bench", *names, *into)
        out_of("bench", names[0], "--batch-size", "1,2,4", *into, "--resume")
        out_of("bench", names[0], "--dtype", "bf16", *into, "--resume")
        out_of("bench", names[0], "--mode", "jit", *into, "--resume")
    return folder / "run"


def of_another_machine(run: Path, to: Path, name: str, slower: float) -> None:
    """A run folder as a quiet machine of another name would have written it: iterations within 1 % of a slower median."""
    rows = read_bench(run / "bench.parquet").to_pylist()
    for row in rows:
        samples = [slower * row["latency_median_ns"] * jitter for jitter in (0.99, 1.0, 1.01)] * 7
        found = summed_up(samples)
        row |= {
            "device_name": name, "samples_ns": samples, "iterations": len(samples), "latency_mean_ns": found.mean,
            "latency_median_ns": found.median, "latency_p95_ns": found.p95, "latency_p99_ns": found.p99,
            "latency_sd_ns": found.deviation, "latency_low_ns": found.low, "latency_high_ns": found.high,
        }  # fmt: skip
        row["throughput"] /= slower
    shutil.copytree(run, to)
    write_table(bench_table(rows), to / "bench.parquet")


@needs_torch
class TestOneModelOnSeveralMachines:
    """S1: run folders made elsewhere, copied together."""

    def test_is_compared_by_one_command_and_drawn_by_one(self, sweep: Path, tmp_path: Path) -> None:
        machines = [tmp_path / name for name in ("t4", "l4", "a100")]
        for machine, name, slower in zip(machines, ("Tesla T4", "NVIDIA L4", "NVIDIA A100"), (6, 3, 1), strict=True):
            of_another_machine(sweep, machine, name, slower)
        text = out_of("compare", *machines)
        assert all(words in text for words in ("Tesla T4", "NVIDIA L4", "NVIDIA A100"))
        assert re.search(r"NVIDIA L4 is 2\.00 x \[1\.9\d* - 2\.0\d*\] faster", text)
        assert re.search(r"NVIDIA A100 is 6\.00 x \[5\.\d+ - 6\.\d+\] faster", text)
        picture = tmp_path / "machines.svg"
        out_of("roofline", "--machine", "t4,l4,a100-sxm4-40gb", "-o", picture)
        assert picture.stat().st_size > 5000

    def test_has_the_figures_of_the_study_except_for_its_sparse_peak_of_the_l4(self) -> None:
        rates = {name: _rates(name) for name in ("a100-sxm4-40gb", "t4", "l4")}
        assert [rates[name]["fp32"] for name in rates] == [19.5e12, 8.1e12, 30.3e12]
        assert [rates[name]["tensor_fp16"] for name in rates] == [312e12, 65e12, 121e12]
        assert [rates[name]["dram"] for name in rates] == [1555e9, 320e9, 300e9]


def _rates(machine: str, *, sparse: bool = False) -> dict[str, float]:
    """Peaks and bandwidth of a machine's roofline, in FLOP/s, OP/s and B/s, by unit: the fastest of each."""
    found: dict[str, float] = {}
    for ceiling in document_of("roofline", "--machine", machine)["ceilings"]:
        if sparse or not ceiling["sparse"]:
            found[ceiling["unit"]] = max(ceiling["value"], found.get(ceiling["unit"], 0.0))
    return found


class TestTenImageModels:
    """S2: chips that need not be there, what bounds each model, correlations, backward against forward, layers."""

    @pytest.mark.parametrize(
        ("machine", "unit", "peak", "bandwidth"),
        [
            ("apple-m1", "fp32", 2.61e12, 67e9),
            ("xeon-gold-6448y-amx-2-cores", "tensor_int8", 33.58e12, 76.8e9),
            ("wormhole-n300s", "tensor_fp8", 466e12, 576e9),
            ("gaudi-3", "tensor_bf16", 1835e12, 3.7e12),
            ("h100-sxm", "tensor_fp8", 3958e12, 3.35e12),
            ("colab-cpu", "fp32", 70.4e9, 76.8e9),
        ],
    )
    def test_chips_without_a_run_have_the_rates_of_the_study(
        self, machine: str, unit: str, peak: float, bandwidth: float
    ) -> None:
        rates = _rates(machine, sparse=True)
        assert rates[unit] == pytest.approx(peak, rel=1e-3)
        assert rates["dram"] == pytest.approx(bandwidth, rel=1e-3)

    @needs_torchvision
    @pytest.mark.nightly
    def test_memory_bound_models_are_those_on_the_page(self) -> None:
        always = {"efficientnet_b0", "mnasnet1_0", "mobilenet_v2", "shufflenet_v2_x1_0"}
        names = [*sorted(always), "alexnet", "googlenet", "regnet_y_400mf", "resnet18", "squeezenet1_1", "vgg16"]
        machines = ("--machine", "t4,apple-m1,h100-sxm,colab-cpu")
        rows = rows_of("estimate", *names, "--batch-size", "1,256", "--phase", "forward", *machines)
        bound: dict[tuple[str, int], set[str]] = {}
        for row in rows:
            if row["bound"] == "DRAM":
                bound.setdefault((row["machine"], row["batch_size"]), set()).add(row["target"])
        assert bound == {
            ("t4", 1): always | {"alexnet", "regnet_y_400mf"}, ("t4", 256): always | {"regnet_y_400mf"},
            ("apple-m1", 1): always | {"alexnet", "regnet_y_400mf"}, ("apple-m1", 256): always | {"regnet_y_400mf"},
            ("h100-sxm", 1): always | {"alexnet", "regnet_y_400mf"}, ("h100-sxm", 256): always,
        }  # fmt: skip
        assert all(row["unknown_operators"] is None for row in rows)

    @needs_torch
    def test_a_sweep_has_a_knee_or_a_reason_and_correlations(self, sweep: Path, tmp_path: Path) -> None:
        found = document_of("bench", sweep, "-o", tmp_path / "scaling.svg")
        (fit,) = found["rows"]
        assert (fit["varied"], fit["dtype"], fit["points"]) == ("batch", "fp32", 3)
        assert (fit["knee"] is None) == (fit["knee_why_not"] is not None)
        pairs = {(pair["one"], pair["other"]): pair for pair in found["correlations"] if "fp32, eager" in pair["group"]}
        assert pairs["parameters", "FLOPs at batch 1"]["models"] == 5
        assert pairs["parameters", "FLOPs at batch 1"]["spearman"] == pytest.approx(1.0)
        assert pairs["FLOPs at batch 1", "latency at batch 1"]["spearman"] is not None

    @needs_torchvision
    def test_backward_has_1_935_times_the_flops_of_forward_and_twice_with_the_gradient_of_the_input(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "own.py").write_text(RESNET_WITH_INPUT_GRADIENT, encoding="utf-8")
        rows = rows_of("estimate", "resnet18", f"{tmp_path / 'own.py'}:resnet18", "--batch-size", "4")
        forward, backward, same, more = (row["flops"] for row in rows)
        assert backward / forward == pytest.approx(1.935, abs=5e-4)
        assert more / same == pytest.approx(2.000, abs=5e-4)

    @needs_torchvision
    def test_layers_have_a_table_and_three_bar_charts(self, tmp_path: Path) -> None:
        out_of("profile", "squeezenet1_1", "--tool", "operators", "--input-size", "64", "-o", tmp_path / "run")
        rows = rows_of("hotspots", "--by", "layer", tmp_path / "run", "-o", tmp_path / "layers.svg")
        assert any(row["module"] == "squeezenet1_1.features.0" for row in rows)
        assert set(re.findall(r'id="axes_(\d)"', (tmp_path / "layers.svg").read_text("utf-8"))) == {"1", "2", "3"}


@needs_torch
class TestPrecisionAndCompilation:
    """S3: a sentence with its spread for each model, across types and across modes."""

    @pytest.mark.parametrize(("across", "words"), [("dtype", "BF16 is"), ("mode", "TorchScript is")])
    def test_a_sweep_is_compared_with_a_sentence_and_its_interval(self, across: str, words: str, sweep: Path) -> None:
        sentence = next(
            line for line in out_of("compare", sweep, "--across", across, "--wide").splitlines() if words in line
        )
        assert re.search(r"[\d.]+ x \[[\d.]+ - [\d.]+\] (faster|slower)", sentence)
        assert re.search(r"takes ([\d.]+ % (less|more)|the same) memory", sentence)


class TestEstimateAgainstCounters:
    """S4. That the estimates are those of the study is in test_estimate.py."""

    def test_the_ridge_point_of_the_a100_is_peak_over_bandwidth(self) -> None:
        ridges = document_of("roofline", "--machine", "a100-sxm4-40gb")["ridge_points"]
        found = {ridge["unit"]: ridge["intensity"] for ridge in ridges}
        assert found["tensor_fp16"] == pytest.approx(200.6, abs=0.05)

    def test_a_metric_of_the_study_that_no_chip_has_is_corrected(self) -> None:
        name = "smsp__sass_thread_inst_executed_op_fadd_p.sum"
        found = document_of("machines", "--metrics", name, "--chip", "ga100")
        assert any("exists on no chip" in note for note in found["notes"])

    def test_a_metric_of_the_study_that_counts_something_else_is_refused(self) -> None:
        result = CliRunner().invoke(
            cli, ["machines", "--metrics", "smsp__sass_thread_inst_executed_op_fp16_pred_on.sum"]
        )
        assert "FMA once" in str(result.exception)


class TestLatencyAgainstSize:
    """S5: parameters of its models, and an exponent for a series."""

    PARAMETERS = (
        {"hf:albert-base-v2": 11.7, "resnet18": 11.7, "squeezenet1_1": 1.2},
        {"hf:bert-base": 109.5, "hf:distilbert": 66.4, "mnasnet1_0": 4.4, "mobilenet_v2": 3.5},
    )

    @needs_torchvision
    @needs_transformers
    @pytest.mark.parametrize("millions", by_day([PARAMETERS[0]], PARAMETERS), ids=", ".join)
    def test_the_models_have_the_parameters_of_the_study(self, millions: dict[str, float]) -> None:
        rows = rows_of("estimate", *millions, "--phase", "forward", "--input-size", "64", "--seq-len", "16")
        assert {row["target"]: row["parameters"] / 1e6 for row in rows} == pytest.approx(millions, abs=0.05)

    @needs_transformers
    def test_longformer_has_the_parameters_of_the_study(self) -> None:
        torch = pytest.importorskip("torch")
        with torch.device("meta"):
            model = build(Workload("hf:longformer-base-4096", sequence_length=16)).model
        assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(148.7, abs=0.05)

    @needs_torch
    def test_latency_against_batch_has_an_exponent_with_its_interval(self, sweep: Path) -> None:
        for row in rows_of("bench", sweep):
            assert row["exponent_low"] < row["exponent"] < row["exponent_high"]
            assert row["verdict"]
