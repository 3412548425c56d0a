"""Kernels that torch.compile generated, and the operators and lines of the model that they are made of.

A model is compiled here for the CPU. Inductor writes Triton code only where Triton and a GPU are: texts with Triton
kernels are written by hand, after `get_kernel_metadata` of torch/_inductor/utils.py and the comments that
torch/_inductor/codegen/triton.py puts in front of a kernel. No GPU was involved.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest
from ncu_launch.files.run_files import COMPILE_LOG, INDUCTOR, LOGS
from ncu_launch.profile.collect import compile_log_environment
from ncu_parsers.derived.operators import inductor_sources
from ncu_parsers.derived.operators.inductor_sources import CompiledKernel, compiled_in, compiled_name, keep
from ncu_parsers.derived.operators.python_locations import Location

from ncu_tools.cli import cli
from ncu_tools.cli.tables.hotspots import compiled_kernels
from ncu_tools.profiling.collected_profile import keep_compiled
from tests.parsers.timelines.test_kineto import call, gpu, host
from tests.support.installed import WITHOUT_TORCH

GRAPH = """
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[64, 64][64, 1]cuda:0", arg1_1: "f32[64][1]cuda:0"):
        # File: /home/user/project/models/net.py:10 in forward, code: y = torch.relu(x + self.bias)
        add: "f32[64, 64][64, 1]cuda:0" = torch.ops.aten.add.Tensor(arg0_1, arg1_1);  arg0_1 = arg1_1 = None
        relu: "f32[64, 64][64, 1]cuda:0" = torch.ops.aten.relu.default(add);  add = None

        # File: /home/user/project/train.py:21 in step, code: loss = y.sum()
        sum_1: "f32[][]cuda:0" = torch.ops.aten.sum.default(relu)

        # File: /opt/env/lib/python3.11/site-packages/torch/nn/functional.py:1700 in relu, code: return torch.relu(input)
        relu_1: "f32[64, 64][64, 1]cuda:0" = torch.ops.aten.relu.default(relu)

        # No stacktrace found for following nodes
        mul: "f32[64, 64][64, 1]cuda:0" = torch.ops.aten.mul.Tensor(relu_1, 2)
        return (sum_1, mul)
"""
CODE = """
# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()


# kernel path: /var/cache/torchinductor_user/ab/cabc.py
# Topologically Sorted Source Nodes: [add, y, loss], Original ATen: [aten.add, aten.relu, aten.sum]
# Source node to ATen node mapping:
#   add => add
#   loss => sum_1
#   y => relu
# Graph fragment:
#   %add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%arg0_1, %arg1_1), kwargs = {})
triton_per_fused_add_relu_sum_0 = async_compile.triton('triton_per_fused_add_relu_sum_0', '''
import triton
@triton.jit
def triton_per_fused_add_relu_sum_0(in_ptr0, out_ptr0, xnumel, r0_numel):
    tmp0 = tl.load(in_ptr0)
''', device_str='cuda')


# kernel path: /var/cache/torchinductor_user/cd/ccde.py
# Topologically Sorted Source Nodes: [mul], Original ATen: [aten.relu, aten.mul]
# Source node to ATen node mapping:
#   mul => mul, relu_1
triton_poi_fused_mul_relu_1 = async_compile.triton('triton_poi_fused_mul_relu_1', '''
''', device_str='cuda')


async_compile.wait(globals())

def call(args):
    # Topologically Sorted Source Nodes: [z], Original ATen: [aten.mm]
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
"""
NET_10, TRAIN_21 = Location("models/net.py", 10, "forward"), Location("train.py", 21, "step")
KERNEL = "triton_per_fused_add_relu_sum_0"


def graph_folder(folder: Path, code: str = CODE, graph: str = GRAPH) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "output_code.py").write_text(code)
    (folder / "fx_graph_transformed.py").write_text(graph)
    return folder


# --------------------------------------------------------------------------------------------------- hand-written


def test_a_triton_kernel_has_the_operators_and_lines_of_its_comment_and_graph(tmp_path: Path) -> None:
    graph_folder(tmp_path / "run" / "torchinductor" / "model__0_inference_0.0")
    found = compiled_in(str(tmp_path))
    assert found == {
        KERNEL: CompiledKernel(("aten.add", "aten.relu", "aten.sum"), (NET_10, TRAIN_21)),
        "triton_poi_fused_mul_relu_1": CompiledKernel(("aten.mul", "aten.relu"), ()),
    }
    assert found[KERNEL].title == "aten.add, aten.relu, aten.sum; models/net.py:10 (forward), train.py:21 (step)"


def test_comments_of_older_releases_are_read(tmp_path: Path) -> None:
    code = CODE.replace("Topologically Sorted ", "").replace("# Source node to ATen node mapping:\n", "")
    code = code.replace("#   add => add\n", "# add => add\n").replace("#   loss", "# loss").replace("#   y", "# y")
    graph = GRAPH.replace(" in forward", "").replace(" in step", "")
    found = compiled_in(str(graph_folder(tmp_path, code, graph)))[KERNEL]
    assert found.operators == ("aten.add", "aten.relu", "aten.sum")
    assert found.lines == (Location("models/net.py", 10, "?"), Location("train.py", 21, "?"))


def test_the_lines_of_stacks_count_before_those_of_the_graph(tmp_path: Path) -> None:
    folder = graph_folder(tmp_path)
    stack = '  File "/home/user/project/models/net.py", line 11, in forward\n    y = torch.relu(x)\n'
    (folder / "inductor_generated_kernel_stack_traces.json").write_text(json.dumps({f"{KERNEL}:1": [stack]}))
    assert compiled_in(str(tmp_path))[KERNEL].places == "net.py:11 (forward)"


def test_the_innermost_line_of_a_stack_outside_pytorch_counts(tmp_path: Path) -> None:
    stack = (
        '  File "/home/user/project/train.py", line 21, in step\n    net(x)\n'
        '  File "/home/user/project/net.py", line 11, in forward\n    F.relu(x)\n'
        '  File "/opt/env/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in relu\n    torch.relu(x)\n'
    )
    (tmp_path / "inductor_provenance_tracking_kernel_stack_traces_42.json").write_text(json.dumps({
        f"{KERNEL}:3": [stack], "extern_kernels.mm:4": [stack],
    }))  # fmt: skip
    assert compiled_in(str(tmp_path)) == {KERNEL: CompiledKernel((), (Location("net.py", 11, "forward"),))}


def test_a_kernel_without_a_comment_has_the_operators_of_its_nodes(tmp_path: Path) -> None:
    folder = graph_folder(tmp_path, code="")
    mapping = {"cppCodeToPost": {"cpp_fused_add_relu_0:2": ["relu", "add"], "extern_kernels.mm:1": ["mm"]}}
    (folder / "inductor_provenance_tracking_node_mappings.json").write_text(json.dumps(mapping))
    (kernel,) = compiled_in(str(tmp_path)).items()
    assert kernel == (
        "cpp_fused_add_relu_0",
        CompiledKernel(("aten.add", "aten.relu"), (Location("net.py", 10, "forward"),)),
    )


def test_a_name_that_several_graphs_gave_stands_for_all_of_its_kernels(tmp_path: Path) -> None:
    graph_folder(tmp_path / "model__0_forward_1.0")
    graph_folder(tmp_path / "model__0_again_2.0")
    other = CODE.replace("[aten.add, aten.relu, aten.sum]", "[aten.neg]")
    graph_folder(tmp_path / "model__1_forward_3.1", other, GRAPH.replace("net.py:10", "net.py:30"))
    found = compiled_in(str(tmp_path))[KERNEL]
    assert found.operators == ("aten.add", "aten.neg", "aten.relu", "aten.sum")
    assert [one.line for one in found.lines] == [10, 30, 21]
    assert found.definitions == 2


def test_a_log_is_read_graph_by_graph(tmp_path: Path) -> None:
    def entry(number: int, text: str, **described: Any) -> str:
        of = {"frame_id": number, "frame_compile_id": 0, "attempt": 0, **described}
        lines = "".join(f"\t{line}\n" for line in text.split("\n"))
        return f"V1125 03:57:54.076000 14283 torch/x.py:1] {json.dumps(of)}\n{lines}"

    stacks = {"artifact": {"name": "inductor_provenance_tracking_kernel_stack_traces", "encoding": "json"}}
    second = CODE.replace("aten.sum]", "aten.amax]").replace(KERNEL, "triton_per_fused_amax_0")
    (tmp_path / "dedicated_log_torch_trace_x1.log").write_text(
        entry(0, GRAPH, inductor_post_grad_graph={})
        + entry(1, GRAPH.replace("net.py:10", "net.py:70"), artifact={"name": "inductor_post_grad_graph"})
        + entry(0, CODE, inductor_output_code={"filename": "/var/a.py"})
        + entry(1, second, inductor_output_code={"filename": "/var/b.py"})
        + entry(0, "not read", artifact={"name": "inductor_other"})
        + entry(1, "{broken", **stacks)
        + "a line without JSON about inductor_output_code\n"
    )
    found = compiled_in(str(tmp_path))
    assert found[KERNEL].lines == (NET_10, TRAIN_21)
    assert found["triton_per_fused_amax_0"].operators == ("aten.add", "aten.amax", "aten.relu")
    assert found["triton_per_fused_amax_0"].lines == (Location("models/net.py", 70, "forward"), TRAIN_21)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (KERNEL, KERNEL),
        (f"{KERNEL}(float*, int)", KERNEL),
        ("graph_0_cpp_fused_add_0", "cpp_fused_add_0"),
        ("void gemm<128, float>(float const*)", "void gemm<128, float>"),
    ],
)
def test_a_kernel_in_a_report_is_that_of_inductor_without_parameters_and_graph(kernel: str, name: str) -> None:
    assert compiled_name(kernel) == name


def test_a_folder_without_kernels_and_a_missing_one_are_errors_that_say_how_to_record(tmp_path: Path) -> None:
    with pytest.raises(NcuBenchError, match="TORCH_COMPILE_DEBUG=1"):
        compiled_in(str(tmp_path))
    with pytest.raises(NcuBenchError, match="cannot be read: No such file"):
        compiled_in(str(tmp_path / "missing"))


PIECES = [
    "# File: /a/net.py:3 in forward, code: x", '  add: "f32[1]" = torch.ops.aten.add.Tensor(', "# No stacktrace found",
    "# Source Nodes: [", "], Original ATen: [aten.add]", "#   a => add", "triton_poi_fused_a_0 = async_compile.triton(",
    '{"triton_poi_fused_a_0:1": [', '"File \\"/a/net.py\\", line 3, in f"', "]}", "\n", " ", "\x00", "é",
]  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5)).map("".join))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    of = (inductor_sources.GRAPH, inductor_sources.CODE, inductor_sources.NODES, inductor_sources.STACKS)
    found = inductor_sources._of_graph(dict.fromkeys(of, text))
    assert all(kernel.operators or kernel.lines for kernel in found.values())


# -------------------------------------------------------------------------------------------------- kept in a run


def test_what_a_run_keeps_reads_back_and_holds_neither_sources_nor_paths_of_the_machine(tmp_path: Path) -> None:
    found = compiled_in(str(graph_folder(tmp_path / "debug")))
    keep(found, tmp_path / "inductor.json")
    assert compiled_in(str(tmp_path / "inductor.json")) == found
    text = (tmp_path / "inductor.json").read_text()
    assert "/home" not in text
    assert "torchinductor" not in text
    assert "self.bias" not in text


@pytest.mark.parametrize("text", ["", "[]", '{"ncu_bench_inductor": 1}', '{"ncu_bench_inductor": 1, "kernels": {"a": 3}}',
                                  '{"ncu_bench_inductor": 2, "kernels": {}}'])  # fmt: skip
def test_a_damaged_file_of_a_run_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "inductor.json").write_text(text)
    with pytest.raises(NcuBenchError):
        compiled_in(str(tmp_path / "inductor.json"))


def test_a_profile_of_a_compiled_model_keeps_its_kernels_in_place_of_the_logs(tmp_path: Path) -> None:
    for rank in ("0", "1"):
        graph_folder(tmp_path / "ranks" / rank / LOGS / COMPILE_LOG)
    assert keep_compiled(tmp_path) == []
    assert KERNEL in compiled_in(str(tmp_path / INDUCTOR))
    assert [one.name for one in (tmp_path / "ranks").rglob("*") if one.is_file()] == []


def test_a_profile_whose_compiler_wrote_nothing_says_so_and_one_that_compiled_nothing_is_silent(tmp_path: Path) -> None:
    (tmp_path / LOGS).mkdir()
    assert keep_compiled(tmp_path) == []
    (tmp_path / LOGS / COMPILE_LOG).mkdir()
    (note,) = keep_compiled(tmp_path)
    assert "are not known" in note
    assert not (tmp_path / INDUCTOR).exists()
    assert not (tmp_path / LOGS / COMPILE_LOG).exists()


@pytest.mark.parametrize(
    ("source", "workload", "asks"),
    [
        ("ncu", {"mode": "compile"}, True),
        ("nsys", {"mode": "compile"}, True),
        ("nsys", {"mode": "eager"}, False),
        ("operators", {"mode": "compile"}, False),  # PyTorch does not compile under the operator collector
        ("nsys", {"program": ["python", "train.py"]}, False),
    ],
)
def test_pytorch_is_asked_for_its_kernels_where_a_model_is_compiled(
    tmp_path: Path, source: str, workload: dict[str, Any], asks: bool
) -> None:
    asked = compile_log_environment(tmp_path, Manifest([], source, "", workload=workload))
    expected = {"TORCH_TRACE": str(tmp_path / LOGS / COMPILE_LOG), "INDUCTOR_PROVENANCE": "1"}
    assert asked == (expected if asks else {})


# ------------------------------------------------------------------------------------------------------ hotspots


def trace_with(folder: Path, *kernels: str) -> Path:
    events = [host("cpu_op", "Torch-Compiled Region: 0/0", 0, 1000)]
    for number, name in enumerate(kernels):
        events += [call(number, 10 * number + 5), gpu("kernel", name, 100 * (number + 1), 50, number)]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    return folder / "trace.json"


def hotspots_json(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["hotspots", *arguments, "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_hotspots_shows_what_a_generated_kernel_is_made_of(tmp_path: Path) -> None:
    debug = graph_folder(tmp_path / "torch_compile_debug")
    trace = trace_with(tmp_path, KERNEL, "gemm", "triton_poi_fused_cos_7")
    table = hotspots_json(str(trace), "--inductor", str(debug))
    made_of = {row["kernel"]: row[compiled_kernels.MADE_OF.name] for row in table["rows"]}
    assert made_of == {
        KERNEL: "aten.add, aten.relu, aten.sum; models/net.py:10 (forward), train.py:21 (step)",
        "gemm": None,
        "triton_poi_fused_cos_7": None,
    }
    assert table["compiled"][KERNEL]["lines"][0] == {"file": "models/net.py", "line": 10, "function": "forward"}
    (note,) = [one for one in table["notes"] if "generated kernel" in one]
    assert note.startswith("1 generated kernel is not in ")
    assert note.endswith("triton_poi_fused_cos_7")


def test_the_location_of_a_generated_kernel_is_the_lines_that_it_is_made_of(tmp_path: Path) -> None:
    debug = graph_folder(tmp_path / "torch_compile_debug")
    trace = trace_with(tmp_path, KERNEL, "gemm")
    table = hotspots_json(str(trace), "--inductor", str(debug), "--group", "location")
    found = {row["kernel"]: row["hottest_kernel"] for row in table["rows"]}
    assert found == {"models/net.py:10 (forward), train.py:21 (step)": KERNEL, "(no location)": "gemm"}


def test_without_what_inductor_wrote_there_is_no_such_column(tmp_path: Path) -> None:
    table = hotspots_json(str(trace_with(tmp_path, KERNEL)))
    assert "made_of" not in table["columns"]


def test_a_run_folder_that_keeps_its_kernels_needs_no_option(tmp_path: Path) -> None:
    trace = trace_with(tmp_path, KERNEL)
    (tmp_path / "run").mkdir()
    CliRunner().invoke(cli, ["parse", str(trace), "-o", str(tmp_path / "run" / "launches.parquet")])
    keep(compiled_in(str(graph_folder(tmp_path / "debug"))), tmp_path / "run" / "inductor.json")
    for run in (tmp_path / "run", tmp_path / "run" / "launches.parquet"):
        assert hotspots_json(str(run))["rows"][0]["made_of"].startswith("aten.add")


def test_a_name_of_several_kernels_is_noted(tmp_path: Path) -> None:
    graph_folder(tmp_path / "debug" / "a")
    graph_folder(tmp_path / "debug" / "b", CODE.replace("aten.sum]", "aten.amax]"))
    table = hotspots_json(str(trace_with(tmp_path, KERNEL)), "--inductor", str(tmp_path / "debug"))
    assert any(note.startswith("1 name stands for different kernels") for note in table["notes"])


@pytest.mark.parametrize("command", ["hotspots", "roofline", "report"])
def test_a_folder_without_kernels_is_an_error_of_every_command_with_the_option(tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    result: Result = CliRunner().invoke(
        cli, [command, str(trace_with(tmp_path, KERNEL)), "--inductor", str(tmp_path / "empty")]
    )
    assert isinstance(result.exception, NcuBenchError)


def test_locations_that_others_sum_do_not_go_with_a_folder_that_is_read_here(tmp_path: Path) -> None:
    arguments = ["hotspots", "x.csv", "--inductor", str(tmp_path), "--dask", "local", "--group", "location"]
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, WrongUsage)
    assert "--dask has others sum locations" in str(result.exception)


# ------------------------------------------------------------------------------------------ compiled here, for the CPU

PROGRAM = """
import sys
import torch
from net import Net

torch.manual_seed(0)
net, x = Net(), torch.randn(8, 64, requires_grad=True)
step = torch.compile(net)
step(x).sum().backward()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler:
    step(x).sum().backward()
profiler.export_chrome_trace(sys.argv[1])
"""
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        y = self.linear(x)
        z = torch.relu(y) + x
        return self.norm(z * 2)
"""
LINEAR, RELU, NORM = (NET.split("\n").index(text) + 1 for text in (
    "        y = self.linear(x)", "        z = torch.relu(y) + x", "        return self.norm(z * 2)",
))  # fmt: skip


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace of a compiled model on the CPU, and what inductor wrote in logs and debug folders."""
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "net.py").write_text(NET)
    (folder / "program.py").write_text(PROGRAM)
    asked = {
        **compile_log_environment(folder, Manifest([], "nsys", "", workload={"mode": "compile"})),
        "TORCH_COMPILE_DEBUG": 1, "TORCH_COMPILE_DEBUG_DIR": folder / "debug",
        "TORCHINDUCTOR_CACHE_DIR": folder / "cache", "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": 1, "OMP_NUM_THREADS": 1,
        # One process, and two programs less to compile:
        "TORCHINDUCTOR_COMPILE_THREADS": 1, "TORCHINDUCTOR_VEC_ISA_OK": 0, "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": 0,
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "program.py", "trace.json"],
        cwd=folder,
        env=os.environ | {name: str(value) for name, value in asked.items()},
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.nightly
def test_every_kernel_of_a_real_compilation_is_found_with_its_lines(compiled: Path) -> None:
    table = hotspots_json(str(compiled / "trace.json"), "--inductor", str(compiled / LOGS))
    made_of = {row["kernel"]: row["made_of"] for row in table["rows"] if "cpp_fused" in row["kernel"]}
    assert len(made_of) >= 2
    assert None not in made_of.values()
    of_forward = [
        name for name in made_of if name.startswith("graph_0_cpp_fused_add_mul_native") and "backward" not in name
    ]
    (forward,) = (made_of[name] for name in of_forward)
    assert forward.endswith(f"; net.py:{RELU}, {NORM} (forward)")
    assert {"aten.relu", "aten.add", "aten.mul"} <= set(forward.partition(";")[0].split(", "))
    lines = {one["line"] for kernel in table["compiled"].values() for one in kernel["lines"]}
    assert lines == {LINEAR, RELU, NORM}
    assert not any("generated kernel" in note for note in table["notes"])


@pytest.mark.nightly
def test_debug_folders_and_the_log_of_one_compilation_agree(compiled: Path) -> None:
    (folder,) = (compiled / "debug" / "torch_compile_debug").glob("run_*")
    by_log, by_folder = (compiled_in(str(path)) for path in (compiled / LOGS, folder))
    assert by_folder
    assert {name: by_log[name] for name in by_folder} == by_folder


@pytest.mark.nightly
def test_a_profile_keeps_what_the_kernels_of_a_real_compilation_are_made_of(compiled: Path, tmp_path: Path) -> None:
    shutil.copytree(compiled / LOGS, tmp_path / LOGS)
    assert keep_compiled(tmp_path) == []
    assert compiled_in(str(tmp_path / INDUCTOR)) == compiled_in(str(compiled / LOGS))
    kept = (tmp_path / INDUCTOR).read_text()
    assert len(kept) < 20_000
    assert str(compiled) not in kept


@pytest.mark.nightly
def test_the_location_of_a_compiled_region_is_the_program_and_of_its_kernels_the_model(compiled: Path) -> None:
    table = hotspots_json(str(compiled / "trace.json"), "--inductor", str(compiled / LOGS), "--group", "location")
    places = {row["kernel"] for row in table["rows"]}
    assert f"net.py:{RELU}, {NORM} (forward)" in places
    assert all(one.startswith(("net.py", "program.py", "(no location)")) for one in places)
