"""Phases of serving engines' runs: told by ranges and kernels where certain, otherwise not said; and what follows."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_launch.files.toml_tables import table_beside
from ncu_launch.profile.plan import FACTS
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.language import engine_steps
from ncu_tools.model.language.engine_steps import engine_step, inside
from ncu_tools.model.language.measured_phases import (
    StepsAsked,
    facts_as_ran,
    measured_phase,
    of_phase,
    on_steps,
    steps_in,
)
from ncu_tools.model.language.step_work import step_work
from ncu_tools.runs.loading import LAUNCHES, load
from tests.support.launches import launch, metric, sass, table
from tests.support.models.models_here import models_run_here
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports
from tests.tools.model.language.test_step_work import MADE

if sys.version_info >= (3, 11):
    pass
else:
    pass

COUNTED = {**sass(ffma=500.0), "sm__inst_executed_pipe_tensor.sum": metric(0.0)}
EXECUTE = "execute_{0}_context_{1}(sq{2}sk{2}sqsq0sqsk0)_generation_{3}(sq{3}sk{4}sqsq{3}sqsk{4})"
RULES = table_beside(engine_steps.__file__, "engine_steps")["kernel"]
SEEN = {rule["seen"]: rule for rule in RULES if "seen" in rule and rule["phase"]}
"""Names as profilers wrote them, found in shared traces and public sources, with the rule that names each."""
(OF_ANY_PHASE,) = (rule["seen"] for rule in RULES if not rule["phase"])
DECODE_KERNEL = "void vllm::paged_attention_v1_kernel<float, float, 128, 16, 128>(float*)"
MERGING = {
    "void vllm::paged_attention_v2_kernel<float, 128>(float*)": "void vllm::paged_attention_v2_reduce_kernel<float, 128>()",
    next(name for name in SEEN if "flash_attn_ext_vec" in name): "void flash_attn_combine_results<64>(args)",
}
"""Kernel of a rule -> one that sums up its parts, by the source of vLLM and a profile of llama.cpp."""
OF_BOTH = (
    "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1, (unsigned "
    "int)128, (unsigned int)2, (unsigned int)2, (unsigned int)8>>, PagedParams>(T2)",
    "kernel_unified_attention_2d",
    "void flash_attn_ext_f16<(int)256, (int)256, (int)2, (int)4, (bool)0, (bool)0>(const char *)",
    "void flash_attn_tile<256, 256, 1, 4, false>(char const*)",
    "void flash_attn_ext_vec<(int)128, (int)2, (ggml_type)1, (ggml_type)1, (bool)0>(...)",
    "fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512PagedKvDenseStaticTokenSparseP1VarSeqQ32Kv128PersistentSwapsAbForGen",
    "fmha_v2_flash_attention_fp16_64_32_S_qkv_128_causal_sm86_kernel_nl",
    "kernel_mha",
    "void flash::flash_fwd_kernel<128>()",
    "_fwd_kernel",
    OF_ANY_PHASE,
)
"""Attention kernels that both phases run, with names of public profiles, sources and logs."""


def one(name: str = "gemm", *ranges: str, ns: float = 1000.0, **attributes: Any) -> Launch:
    made = launch(name, ns=ns, **attributes)
    made.nvtx_path = ranges
    return made


class TestAStep:
    def test_is_that_of_the_range_that_counts_requests_and_keys(self) -> None:
        step, notes = engine_step(table(one("gemm", EXECUTE.format(32, 0, 0, 32, 32 * 1025))))
        assert step is not None
        assert (step.phase, step.batch_size, step.context_length, step.engine) == ("decode", 32, 1024, "")
        assert notes == []

    def test_joins_ranges_inside_each_other_and_names_the_engine_that_only_one_names(self) -> None:
        names = (EXECUTE.format(4, 0, 0, 4, 44), "step[DECODE bs=4]")
        step, _ = engine_step(table(one("gemm", "## Call CompiledFxGraph f ##", *names), one("copy", names[0])))
        assert step is not None
        assert (step.engine, step.batch_size, step.context_length) == ("SGLang", 4, 10)
        assert step.evidence == names

    @pytest.mark.parametrize(
        ("name", "batch", "tokens"),
        [("step[EXTEND bs=2 toks=108]", 2, 108), ("execute_context_3(384)_generation_0(0)", 3, 384),
         ("execute_context_1(888_788544)_generation_0(0)", 1, 888),
         (EXECUTE.format(9, 1, 512, 0, 0), 1, 512)],
    )  # fmt: skip
    def test_of_a_prompt_has_its_tokens(self, name: str, batch: int, tokens: int) -> None:
        step, _ = engine_step(table(one("gemm", name)))
        assert step is not None
        assert (step.phase, step.batch_size, step.tokens) == ("prefill", batch, tokens)

    @pytest.mark.parametrize(
        "name",
        [EXECUTE.format(9, 2, 64, 3, 30), "execute_context_1(16)_generation_2(2)"],
    )
    def test_that_mixes_both_is_of_neither_and_a_note_says_so(self, name: str) -> None:
        step, notes = engine_step(table(one("gemm", name)))
        assert step is None
        assert notes == ["a step prefills some sequences and decodes others: it belongs to neither phase"]

    @pytest.mark.parametrize("name", ["step[MIXED bs=2]", "decode", "my_step", "step[DECODE]", ""])
    def test_with_another_name_is_not_guessed(self, name: str) -> None:
        assert engine_step(table(one("gemm", *filter(None, [name])))) == (None, [])

    def test_is_decode_where_a_kernel_for_single_tokens_ran_and_not_for_kernels_of_both(self) -> None:
        step, _ = engine_step(table(one(DECODE_KERNEL), one(DECODE_KERNEL), one("gemm")))
        assert step is not None
        assert (step.phase, step.batch_size, step.attention_launches) == ("decode", None, 2)

    @pytest.mark.parametrize("name", SEEN)
    def test_has_the_phase_of_a_kernel_that_one_phase_alone_runs_by_the_names_of_profiles(self, name: str) -> None:
        step, notes = engine_step(table(one(name), one("gemm"), one(name)))
        assert step is not None
        assert (step.phase, step.engine, step.attention_launches) == (SEEN[name]["phase"], SEEN[name]["engine"], 2)
        assert notes == []

    @pytest.mark.parametrize(
        "name",
        ["void mmha::masked_multihead_attention_kernel<unsigned short, 128>(Params)", DECODE_KERNEL],
    )  # fmt: skip
    def test_has_the_phase_of_kernels_that_are_known_by_their_source_alone(self, name: str) -> None:
        step, _ = engine_step(table(one(name)))
        assert step is not None
        assert step.phase == "decode"

    @pytest.mark.parametrize("name", MERGING)
    def test_has_its_phase_where_a_kernel_that_sums_up_parts_runs_too(self, name: str) -> None:
        step, _ = engine_step(table(one(name), one(MERGING[name])))
        assert step is not None
        assert (step.phase, step.attention_launches) == ("decode", 1)

    @pytest.mark.parametrize("name", [*OF_BOTH, "void mul_mat_vec_q<(ggml_type)8, 1, true, true>(args)"])
    def test_is_not_told_by_a_kernel_of_both_phases(self, name: str) -> None:
        assert engine_step(table(one(name))) == (None, [])

    @pytest.mark.parametrize("other", OF_BOTH)
    def test_is_not_certain_where_a_kernel_of_both_phases_runs_beside_one_of_decode(self, other: str) -> None:
        step, notes = engine_step(table(one(DECODE_KERNEL), one(other)))
        assert step is None
        assert "runs in decode alone, and" in notes[0]
        assert other[:60] in notes[0]

    def test_is_not_certain_where_kernels_of_both_phases_run(self) -> None:
        ragged = next(name for name in SEEN if "Ragged" in name)
        step, notes = engine_step(table(one(DECODE_KERNEL), one(ragged)))
        assert step is None
        assert "may belong to different phases" in notes[0]

    def test_is_of_no_phase_by_a_kernel_that_runs_in_both_but_counts_its_launches_in_a_range(self) -> None:
        kernel = one(OF_ANY_PHASE, "step[DECODE bs=4]")
        step, _ = engine_step(table(kernel, replace(kernel)))
        assert step is not None
        assert (step.phase, step.batch_size, step.attention_launches) == ("decode", 4, 2)

    @pytest.mark.parametrize(
        "name",
        ["execute_context_0(0)_generation_64(128)",
         "execute_64_context_0(sq0sk0sqsq0sqsk0)_generation_64(sq128sk131072sqsq256sqsk262144)"],
    )  # fmt: skip
    def test_with_several_tokens_for_a_decoding_sequence_is_not_guessed(self, name: str) -> None:
        assert engine_step(table(one("gemm", name))) == (None, [])

    def test_is_not_said_of_steps_that_differ(self) -> None:
        step, notes = engine_step(table(one("a", "step[DECODE bs=4]"), one("b", "step[EXTEND bs=4 toks=64]")))
        assert step is None
        assert "its steps differ in phase or batch" in notes[0]


class TestARun:
    def test_has_the_batch_and_context_of_its_step_unless_the_user_says_otherwise(self) -> None:
        step, _ = engine_step(table(one("gemm", EXECUTE.format(32, 0, 0, 32, 32 * 1025))))
        facts = facts_as_ran(MADE, "decode", step, StepsAsked())
        assert (facts.batch_size, facts.context_length) == (32, 1024)
        assert facts_as_ran(MADE, "decode", step, StepsAsked(tokens_per_step=8)).batch_size == 8

    def test_has_prompts_of_equal_length(self) -> None:
        assert facts_as_ran(MADE, "prefill", None, StepsAsked(tokens_per_step=96)).prompt_length == 32
        with pytest.raises(WrongUsage, match="100 tokens per step are no equal prompts of 3 sequences"):
            facts_as_ran(MADE, "prefill", None, StepsAsked(tokens_per_step=100))

    def test_has_a_step_for_each_attention_launch_of_every_layer(self) -> None:
        step, _ = engine_step(table(*[one(DECODE_KERNEL)] * 12))
        assert steps_in(MADE, step, StepsAsked(), 1) == 3
        assert steps_in(replace(MADE, windows=(None,) * 5), step, StepsAsked(), 1) == 1
        assert steps_in(MADE, step, StepsAsked(steps=7), 1) == 7

    def test_has_as_many_steps_as_ranges_with_names_of_their_own_and_a_note_that_more_may_be(self) -> None:
        ranges = [EXECUTE.format(2, 0, 0, 2, 2 * keys) for keys in (11, 12, 13)]
        step, _ = engine_step(table(*[one("gemm", name, "step[DECODE bs=2]") for name in ranges], one("a", ranges[0])))
        assert steps_in(MADE, step, StepsAsked(), 1) == 3
        assert "taken as 3 steps" in on_steps(MADE, step, StepsAsked(), 3)[0]
        assert on_steps(MADE, step, StepsAsked(steps=4), 4) == []
        counted, _ = engine_step(table(*[one(DECODE_KERNEL, name) for name in ranges * 4]))
        assert steps_in(MADE, counted, StepsAsked(), 1) == 3
        assert on_steps(MADE, counted, StepsAsked(), 3) == []

    def test_of_a_server_has_the_launches_inside_of_the_ranges_that_are_asked_for(self) -> None:
        launches = table(
            one("a", "step[DECODE bs=4]"), one("b", "step[EXTEND bs=4 toks=64]"), one("c", "x", "step[DECODE bs=4]"),
            one("d"),
        )  # fmt: skip
        assert inside(launches, re.compile("DECODE")).column("kernel_name").to_pylist() == ["a", "c"]
        with pytest.raises(WrongUsage, match=r"No launch is in a range whose name has MIXED.*step\[DECODE bs=4\]"):
            inside(launches, re.compile("MIXED"))
        with pytest.raises(WrongUsage, match="No launch is in any range"):
            inside(table(one("d")), re.compile("DECODE"))

    def test_is_set_beside_the_least_work_and_the_peaks(self) -> None:
        launches = table(one(ns=3e6, dram=2e6), one(ns=1e6, dram=1e6))
        work = step_work(MADE, "decode")
        row, notes = measured_phase(launches, MADE, "decode", 2, machine=find_machine("h100-sxm"), unit="tensor_bf16")
        assert row.time_ns == 2e6
        assert row.measured_bytes == 1.5e6
        assert row.bytes_ratio == 1.5e6 / work.bytes
        assert row.tokens_per_s == pytest.approx(3 / 2e-3)
        assert row.mfu == pytest.approx(work.causal_flops / 2e-3 / 989.4e12)
        assert row.mbu == pytest.approx(work.bytes / 2e-3 / 3.35e12)
        assert "on h100-sxm MFU is of 989.4 TFLOP/s (tensor BF16, data sheet, dense) and MBU is of 3350 GB/s" in notes

    def test_that_needs_more_than_the_machine_has_is_noted_first(self) -> None:
        work = step_work(MADE, "decode")
        too_short = work.bytes / 3.35e12 / 1.2 * 1e9
        machine = find_machine("h100-sxm")
        _, notes = measured_phase(table(one(ns=too_short)), MADE, "decode", 1, machine=machine, unit="tensor_bf16")
        assert notes[0].startswith("decode: MBU is 120.0 %, more than the machine has")
        assert "--iterations" in notes[0]
        _, notes = measured_phase(table(one(ns=2 * too_short)), MADE, "decode", 1, machine=machine, unit="tensor_bf16")
        assert not any("more than the machine has" in note for note in notes)

    def test_without_a_machine_or_a_time_has_no_shares(self) -> None:
        row, _ = measured_phase(table(one(ns=1e6)), MADE, "decode", 1)
        assert (row.mfu, row.mbu, row.of_the_roof, row.measured_bytes) == (None, None, None, None)

    def test_of_two_phases_has_the_launches_of_each_and_of_none_all(self) -> None:
        launches = table(one(phase="prefill"), one(phase="decode"), one(phase="decode"))
        assert len(of_phase(launches, "decode")) == 2
        assert len(of_phase(table(one(), one()), "decode")) == 2


def test_a_counted_run_of_ours_has_measured_bytes_beside_those_as_read(tmp_path: Path) -> None:
    launches = table(
        one(ns=4e6, dram=4e6, phase="prefill", module="m", iteration=0),
        one(ns=2e6, dram=3e6, phase="decode", module="m", iteration=0, metrics=COUNTED),
    )
    write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), tmp_path / LAUNCHES)
    write_manifest(
        Manifest(asked=["profile"], source="ncu", started="2026-01-01", workload={"dtype": "bf16"}), tmp_path
    )
    (tmp_path / FACTS).write_text(json.dumps({"language": asdict(MADE)}), "utf-8")
    header = {"ncu_bench_operators": 2, "device": "meta", "device_name": "", "estimate": True}
    operator = {
        "operator": "aten.mm", "phase": "decode", "module": "m", "iteration": 0, "ns": None, "flops": 10,
        "contraction_flops": 10, "unit": None, "read": 1, "written": 1, "shapes": "", "dtype": "float32",
    }  # fmt: skip
    (tmp_path / "expected.jsonl").write_text("\n".join(map(json.dumps, (header, operator))) + "\n", "utf-8")
    done = ran("compare", "--with", "formulas", str(tmp_path), "--machine", "h100-sxm", "--format", "json")
    assert done.exit_code == 0, done.stderr
    prefill, decode = json.loads(done.stdout)["generation"]
    assert (prefill["phase"], decode["phase"]) == ("prefill", "decode")
    assert (prefill["measured_flops"], decode["measured_flops"]) == (None, 2 * 500.0)
    assert decode["flops_ratio"] == 1000 / step_work(MADE, "decode").flops
    assert decode["bytes_ratio"] == 3e6 / step_work(MADE, "decode").bytes
    assert decode["mbu"] == pytest.approx(step_work(MADE, "decode").bytes / 2e-3 / 3.35e12)


@needs_shared_reports
@pytest.mark.slow
class TestTracesOfEngines:
    @pytest.fixture(autouse=True)
    def _here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("transformers", reason="transformers is not installed")
        models_run_here(monkeypatch)

    @staticmethod
    def trace(word: str) -> str:
        (path,) = [one for one in shared_reports("kineto") if word in one.name]
        return str(path)

    def test_sglangs_decode_step_is_found_with_batch_context_and_steps(self) -> None:
        done = ran(
            "compare", self.trace("sglang_decode"), "--with", "formulas", "--target", "hf:qwen3-8b", "--dtype", "bf16",
            "--format", "json",
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        (row,) = json.loads(done.stdout)["rows"]
        assert (row["engine"], row["phase"], row["batch_size"]) == ("SGLang", "decode", 32)
        assert (row["context_length"], row["steps"]) == (1024, 1)
        assert row["time_ns"] == pytest.approx(9.779e6, rel=0.01)
        assert row["cache_read_bytes"] == 32 * 1024 * 147_456
        assert "MFU and MBU need a machine" in done.stdout

    @pytest.mark.nightly
    def test_vllms_decode_step_is_found_and_no_engine_said_by_a_name_that_others_use_too(self) -> None:
        done = ran(
            "compare", "--with", "formulas", self.trace("vllm_decode"), "--target", "hf:qwen3-8b", "--format", "json"
        )
        (row,) = json.loads(done.stdout)["rows"]
        assert (row["engine"], row["phase"], row["batch_size"], row["context_length"]) == (None, "decode", 32, 1720)

    def test_a_prefill_of_vllm_is_found_by_its_range_and_kernels_alike(self) -> None:
        (path,) = [one for one in shared_reports("kineto") if "b200" in one.name]
        launches = load(str(path)).table
        step, _ = engine_step(launches)
        assert step is not None
        assert (step.engine, step.phase, step.batch_size, step.tokens) == ("vLLM", "prefill", 1, 888)
        assert step.attention_launches == 36
        without = launches.drop_columns("nvtx_path")
        by_kernel, _ = engine_step(without.append_column("nvtx_path", pa.nulls(len(without), pa.list_(pa.string()))))
        assert by_kernel is not None
        assert (by_kernel.phase, by_kernel.attention_launches) == ("prefill", 36)

    def test_steps_of_one_phase_are_selected_from_a_recording_of_both(self, tmp_path: Path) -> None:
        launches = table(
            one("a", "step[DECODE bs=4]", ns=2e6), one("b", "step[EXTEND bs=1 toks=64]", ns=9e6), one("c", ns=5e6),
        )  # fmt: skip
        write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), tmp_path / "both.parquet")
        asked = ("compare", "--with", "formulas", str(tmp_path / "both.parquet"), "--target", "hf:qwen2.5-0.5b", "--tokens-per-step", "4",
                 "--set", "num_hidden_layers=2")  # fmt: skip
        undecided = ran(*asked)
        assert undecided.exit_code == 2
        assert "select some with --nvtx and a part of the name of their range" in undecided.stderr.lower()
        done = ran(*asked, "--nvtx", "DECODE", "--format", "json")
        (row,) = json.loads(done.stdout)["generation"]  # behind the comparison with what ncu counted
        assert (row["phase"], row["batch_size"], row["time_ns"], row["steps"]) == ("decode", 4, 2e6, 1)
        assert "taken as 1 step, since nothing counts them" in done.stdout
        alone = ran("compare", "--with", "formulas", str(tmp_path / "both.parquet"), "--nvtx", "DECODE")
        assert alone.exit_code == 2
        assert "--nvtx were given without --target" in alone.stderr

    def test_tokens_per_step_of_the_user_replace_those_of_the_trace(self) -> None:
        done = ran(
            "compare", self.trace("sglang_decode"), "--with", "formulas", "--target", "hf:qwen3-8b", "--tokens-per-step", "16",
            "--set", "num_hidden_layers=2", "--format", "json",
        )  # fmt: skip
        (row,) = json.loads(done.stdout)["rows"]
        assert (row["batch_size"], row["tokens"]) == (16, 16)

    def test_a_phase_that_the_trace_contradicts_is_refused_with_what_says_so(self) -> None:
        done = ran(
            "compare",
            "--with",
            "formulas",
            self.trace("sglang_decode"),
            "--target",
            "hf:qwen3-8b",
            "--phase",
            "prefill",
        )
        assert done.exit_code == 2
        assert "is of decode, and not of prefill" in done.stderr
        assert "step[DECODE bs=32]" in done.stderr

    def test_tokens_per_step_of_a_trace_that_says_nothing_need_a_phase(self) -> None:
        done = ran(
            "compare",
            "--with",
            "formulas",
            self.trace("Qwen1.5"),
            "--target",
            "hf:qwen2.5-0.5b",
            "--tokens-per-step",
            "4",
        )
        assert done.exit_code == 2
        assert "says for certain whether it is prefill or decode" in done.stderr

    def test_tokens_per_step_without_a_language_model_are_refused(self) -> None:
        done = ran("compare", "--with", "formulas", self.trace("sglang_decode"), "--tokens-per-step", "4")
        assert done.exit_code == 2
        assert "--tokens-per-step is for prefill and decode" in done.stderr
