"""Models quantised by torchao: what runs is what is counted without running, and weights have their packed bytes."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.targets.language.settings import check
from ncu_launch.workload.meta_device_count import estimate
from ncu_launch.workload.quantised_weights import is_quantised, stored_bytes, stored_in
from ncu_launch.workload.workload import prepared, run
from ncu_launch.workload_spec import Workload

from ncu_tools.model.language.step_work import precision_of, resident_weight_bytes, step_work, weight_bytes
from tests.support.installed import WITHOUT_TORCH, WITHOUT_TORCHAO
from tests.support.nightly import by_day

torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytestmark = [
    pytest.mark.slow,
    # Importing them takes every process that collects tests a second.
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
    pytest.mark.skipif(find_spec("torchao") is None, reason=WITHOUT_TORCHAO),
]

WIDTH, BETWEEN, LAYERS, WORDS, KEYS = 128, 256, 2, 512, 64
SMALL = {
    "hidden_size": WIDTH, "intermediate_size": BETWEEN, "num_hidden_layers": LAYERS, "vocab_size": WORDS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
}  # fmt: skip
ROWS = LAYERS * (2 * WIDTH + 2 * KEYS + 2 * BETWEEN + WIDTH)
"""Rows of all linear modules: of queries and results, keys and values, gate and up, and down."""
QUANTISED = LAYERS * (2 * WIDTH * WIDTH + 2 * KEYS * WIDTH + 3 * BETWEEN * WIDTH)

BYTES = {
    "int8wo": QUANTISED + ROWS * (4 + 1),  # a scale in float32 and a zero point of a byte for each row
    "fp8wo": QUANTISED + ROWS * 4,
    "int4wo": QUANTISED // 2 + QUANTISED // 128 * 2 * 2,  # scale and zero point in bf16 for 128 weights
}
"""Scheme -> bytes of the quantised weights, by the documentation of torchao's tensors."""


def asked(scheme: str, phases: tuple[str, ...] = ("decode",), **more: Any) -> Workload:
    arguments = tuple((name, str(value)) for name, value in {**SMALL, **more, "quantize": scheme}.items())
    return check(Workload("hf:llama-3.2-1b", 2, dtype="bf16", phases=phases, device="cpu", arguments=arguments))


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()[1:]]


def work_in(path: Path) -> list[tuple[Any, ...]]:
    """The work of each operator. Not its name: one product may be `mm` or `bmm`, by strides of dimensions of size 1."""
    names = ("module", "flops", "contraction_flops", "read", "written")
    return [tuple(record[name] for name in names) for record in records(path)]


@pytest.mark.parametrize("scheme", by_day(["int4wo"], list(BYTES)))
def test_what_is_counted_without_running_a_quantised_model_is_what_runs(scheme: str, tmp_path: Path) -> None:
    workload = asked(scheme, phases=("prefill", "decode"), prompt_length=24, context_length=40)
    run(workload, tmp_path / "facts", tmp_path / "operators")
    estimate(workload, tmp_path / "expected", tmp_path / "summary")
    assert work_in(tmp_path / "expected") == work_in(tmp_path / "operators")
    facts, summary = (json.loads((tmp_path / name).read_text("utf-8")) for name in ("facts", "summary"))
    assert facts["language"] == summary["language"]
    assert facts["language"]["quantised_parameters"] == QUANTISED
    assert facts["language"]["quantised_bytes"] == BYTES[scheme]
    assert summary["parameter_bytes"] == BYTES[scheme] + 2 * (summary["parameters"] - QUANTISED)
    assert any(f"({scheme}, torchao)" in note for note in facts["notes"])


@pytest.mark.parametrize("scheme", BYTES)
def test_products_of_quantised_weights_have_the_flops_of_arithmetic(scheme: str, tmp_path: Path) -> None:
    workload = asked(scheme, context_length=40)
    estimate(workload, tmp_path / "expected", tmp_path / "summary")
    facts = prepared_facts(workload)
    flops = sum(record["contraction_flops"] for record in records(tmp_path / "expected"))
    assert flops == pytest.approx(step_work(facts, "decode").flops, rel=0.01)


def prepared_facts(workload: Workload) -> Any:
    from ncu_launch.targets.models import build
    from ncu_launch.workload.workload import assembled, placed

    built = build(workload)
    assembled(workload, built, *placed(workload, built, "cpu"), "cpu")
    assert built.language is not None
    return built.language


def test_a_step_reads_packed_weights_and_the_others_in_the_type_of_the_run() -> None:
    facts = prepared_facts(asked("int4wo"))
    others = 2 * (facts.parameters - QUANTISED)
    of_tokens = (
        2 * 2 * WIDTH
    )  # embeddings of two sequences' tokens: their table is the LM head too, and is read as that
    assert weight_bytes(facts, 2, precision_of(facts)) == BYTES["int4wo"] + others + of_tokens
    assert resident_weight_bytes(facts, precision_of(facts)) == BYTES["int4wo"] + others


def test_products_with_int4_on_a_cpu_read_half_a_byte_for_each_weight(tmp_path: Path) -> None:
    estimate(asked("int4wo"), tmp_path / "expected", tmp_path / "summary")
    found = [one for one in records(tmp_path / "expected") if one["operator"] == "aten._weight_int4pack_mm_for_cpu"]
    query = next(one for one in found if one["module"].endswith("q_proj"))
    assert query["flops"] == query["contraction_flops"] == 2 * 2 * WIDTH * WIDTH
    assert query["read"] == 2 * WIDTH * 2 + WIDTH * WIDTH // 2 + WIDTH * WIDTH // 128 * 2 * 2
    assert query["written"] == 2 * WIDTH * 2
    assert query["bytes_basis"] == "least by shapes"


def test_int8_on_a_cpu_is_read_and_turned_into_the_type_of_the_run_before_each_product(tmp_path: Path) -> None:
    estimate(asked("int8wo"), tmp_path / "expected", tmp_path / "summary")
    of_query = [one for one in records(tmp_path / "expected") if (one["module"] or "").endswith("q_proj")]
    turned = next(one for one in of_query if one["operator"] == "aten._to_copy")
    assert (turned["read"], turned["written"]) == (WIDTH * WIDTH, 2 * WIDTH * WIDTH)
    product = next(one for one in of_query if one["operator"] == "aten.mm")
    assert product["read"] == 2 * WIDTH * WIDTH + 2 * WIDTH * 2


def test_the_lm_head_and_embeddings_stay_in_the_type_of_the_run() -> None:
    step = prepared(asked("int8wo"))
    plain = {name for name, one in step.watched.named_parameters() if not is_quantised(one)}
    assert {"model.embed_tokens.weight", "model.norm.weight"} <= plain
    assert not is_quantised(step.watched.lm_head.weight)


@pytest.mark.parametrize(
    ("module", "configuration", "scales", "bits"),
    [
        ("torchao.quantization", "Int8WeightOnlyConfig()", 5, 8),
        ("torchao.quantization", "Int8DynamicActivationInt8WeightConfig()", 5, 8),
        ("torchao.prototype.quantization.int4", "PrototypeInt4WeightOnlyConfig(group_size=32)", 2 * 2 * 4, 4),
    ],
)
def test_users_models_that_torchao_quantised_are_estimated_by_their_packed_bytes(
    module: str, configuration: str, scales: int, bits: int, tmp_path: Path
) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\n"
        f"from {module} import {configuration.partition('(')[0]}\n"
        "from torchao.quantization import quantize_\n"
        "def model():\n"
        "    made = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False))\n"
        f"    quantize_(made, {configuration})\n"
        "    return made, (torch.randn(4, 64),)\n",
        "utf-8",
    )
    workload = Workload(f"{source}:model", phases=("forward",), device="cpu")
    run(workload, tmp_path / "facts", tmp_path / "operators")
    estimate(workload, tmp_path / "expected", tmp_path / "summary")
    assert work_in(tmp_path / "expected") == work_in(tmp_path / "operators")
    summary = json.loads((tmp_path / "summary").read_text("utf-8"))
    assert summary["parameter_bytes"] == 32 * 64 * bits // 8 + 32 * scales
    assert summary["alive_bytes"] == summary["parameter_bytes"] + 4 * 64 * 4
    ran, operations = records(tmp_path / "operators"), 2 * 4 * 64 * 32
    is_of_integers = "Dynamic" in configuration
    assert sum(one["contraction_flops"] for one in ran) == (0 if is_of_integers else operations)
    assert sum(one.get("integer_operations", 0) for one in ran) == (operations if is_of_integers else 0)


def test_measured_points_have_the_packed_bytes_of_weights() -> None:
    from ncu_launch.bench.memory_and_self_times import allocated_bytes

    step = prepared(asked("int4wo"))
    kept = sum(map(stored_bytes, step.watched.parameters()))
    buffers = sum(map(stored_bytes, step.watched.buffers()))
    assert allocated_bytes(step) == kept + buffers + 2 * 8  # and a token of each of two sequences
    assert kept < sum(int(one.nbytes) for one in step.watched.parameters())


def test_plain_tensors_are_kept_as_they_are() -> None:
    tensor = torch.zeros(3, 5)
    assert next(stored_in(tensor)) is tensor
    assert stored_bytes(tensor) == 60


def test_a_model_without_linear_modules_is_refused() -> None:
    gpt = Workload("hf:gpt2", phases=("decode",), device="cpu", arguments=(("quantize", "int8wo"), ("n_layer", "1")))
    with pytest.raises(WrongUsage, match="hf:gpt2 has no weights that int8wo quantises"):
        prepared(check(gpt))


def test_rows_that_groups_do_not_divide_are_refused() -> None:
    odd: dict[str, Any] = {
        "hidden_size": 96,
        "intermediate_size": 96,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
    }
    with pytest.raises(WrongUsage, match="a multiple of 128 weights"):
        prepared(asked("int4wo", **odd))


def test_without_torchao_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "torchao"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(NcuBenchError, match=r"needs torchao.*") as caught:
        prepared(asked("int8wo"))
    assert "pip install '.[quantize]'" in str(caught.value.advice)


def test_a_quantised_model_has_no_backward_pass() -> None:
    with pytest.raises(WrongUsage, match="no backward pass"):
        asked("int8wo", phases=("forward", "backward"))


def test_an_unknown_scheme_is_refused_with_those_there_are() -> None:
    with pytest.raises(WrongUsage, match="none, int8wo, int4wo, fp8wo"):
        asked("int3wo")
