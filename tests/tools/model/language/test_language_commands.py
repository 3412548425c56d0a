"""Language models through the commands: estimate, bench, profile, layers and expected, and each refusal's exit code.

Tables come from `ncu_tools.cli.option_kinds.language_options`, `ncu_launch.bench.generation_row`, `ncu_tools.model.language.measured_points`,
`ncu_tools.model.expected.generation` and `ncu_tools.cli.comparing.what_ran`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.bench.sweep import Sweep, points
from ncu_parsers.parquet.reader import read_bench

from ncu_tools.ceilings import machine_files
from ncu_tools.model.language.language_estimate import Types, facts_in, language_estimate
from ncu_tools.model.language.measured_points import with_utilisation
from tests.support.installed import WITHOUT_TORCH
from tests.support.models.models_here import called_with_models, models_run_here
from tests.support.ran import Ran, ran

pytestmark = pytest.mark.slow

SMALL = [
    word
    for field in (
        "hidden_size=64", "intermediate_size=96", "num_hidden_layers=2", "num_attention_heads=4",
        "num_key_value_heads=2", "vocab_size=500", "max_position_embeddings=256",
    )
    for word in ("--set", field)
]  # fmt: skip
QUICK = ("--max-time", "0.05", "--warmup", "1", "--on", "cpu")
LLAMA = "hf:llama-2-7b"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.setenv("NCU_BENCH_NO_MEASURE", "1")
    monkeypatch.setenv("NCU_BENCH_IGNORE_LOAD", "1")
    models_run_here(monkeypatch)


def rows_of(done: Ran) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


class TestEstimate:
    def test_has_bytes_per_token_least_time_and_turning_points_of_decode(self) -> None:
        row, = rows_of(ran(
            "estimate", "hf:llama-3-8b", "--phase", "decode", "--dtype", "bf16", "--context-length", "100",
            "--machine", "h100-sxm", "--format", "json",
        ))  # fmt: skip
        assert row["cached_bytes_per_token"] == 131_072
        assert row["weights_resident_bytes"] == 2 * 8_030_261_248
        assert row["bytes_per_token"] == pytest.approx(15.03e9, rel=0.001)
        assert row["least_token_ns"] == pytest.approx(row["bytes_per_token"] / 3350, rel=1e-6)
        assert row["flops_arithmetic"] == pytest.approx(row["flops"], rel=1e-9)
        assert (row["whole_bytes"], row["head"], row["context_length"]) == ("as read", "yes", 100)
        assert 300 < row["compute_bound_batch"] < 700
        assert row["cache_outweighs_context"] == pytest.approx(15.01e9 / 131_072, rel=0.001)

    def test_has_a_row_for_each_phase_length_batch_and_none_twice(self) -> None:
        rows = rows_of(ran(
            "estimate", LLAMA, *SMALL, "--phase", "prefill,decode", "--prompt-length", "16,32",
            "--context-length", "64", "--batch-size", "1,2", "--format", "json",
        ))  # fmt: skip
        found = [(row["phase"], row["prompt_length"], row["context_length"], row["batch_size"]) for row in rows]
        assert sorted(found, key=str) == sorted(
            [("prefill", length, None, batch) for length in (16, 32) for batch in (1, 2)]
            + [("decode", None, 64, batch) for batch in (1, 2)],
            key=str,
        )

    def test_takes_int4_weights_as_half_a_byte_each(self) -> None:
        asked = ("estimate", LLAMA, *SMALL, "--phase", "decode", "--dtype", "bf16", "--format", "json")
        plain, = rows_of(ran(*asked))  # fmt: skip
        done = ran(*asked, "--weights", "int4", "--kv-cache", "fp8")
        small, = rows_of(done)  # fmt: skip
        assert small["weights_read_bytes"] == plain["weights_read_bytes"] / 4
        assert small["cache_read_bytes"] == plain["cache_read_bytes"] / 2
        assert small["flops"] == plain["flops"]
        assert "products are computed in --dtype" in done.stdout + done.stderr

    def test_says_which_forward_passes_have_a_head_and_how_long_they_are(self) -> None:
        with_head, = rows_of(ran("estimate", "hf:gpt2", "--phase", "forward", "--format", "json"))  # fmt: skip
        without, = rows_of(ran("estimate", "hf:gpt2", "--phase", "forward", "--no-head", "--format", "json"))  # fmt: skip
        assert (with_head["head"], with_head["sequence_length"]) == ("yes", 128)
        assert (without["head"], without["sequence_length"]) == ("no", 128)
        assert with_head["flops"] - without["flops"] == 2 * 128 * 768 * 50257

    def test_estimates_experts_in_every_type(self) -> None:
        experts = [*SMALL, "--set", "num_local_experts=4"]
        rows = rows_of(ran(
            "estimate", "hf:mixtral-8x7b", *experts, "--phase", "decode", "--dtype", "fp32,bf16", "--format", "json",
        ))  # fmt: skip
        assert rows[0]["flops"] == rows[1]["flops"] == pytest.approx(rows[0]["flops_arithmetic"], rel=1e-9)

    def test_of_other_models_has_none_of_these_columns_filled(self) -> None:
        row, = rows_of(ran("estimate", "hf:distilbert", "--phase", "forward", "--format", "json"))  # fmt: skip
        assert row["sequence_length"] == 128
        assert row["head"] is row.get("bytes_per_token") is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured sweep, which no test changes."""
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("measured")
    done = called_with_models(
        "bench", LLAMA, *SMALL, "--phase", "prefill,decode", "--prompt-length", "16", "--context-length", "32,64",
        "--new-tokens", "2", "--batch-size", "3", *QUICK, "-o", "run", cwd=folder,
    )  # fmt: skip
    assert done.code == 0, done.err
    return folder / "run"


class TestBench:
    def test_has_times_of_tokens_and_memory_by_kind(self, folder: Path) -> None:
        rows = read_bench(folder / "bench.parquet").to_pylist()
        assert [row["phase"] for row in rows] == ["prefill", "decode", "decode"]
        prefill, decode, longer = rows
        assert prefill["first_token_ns"] == prefill["latency_median_ns"]
        assert prefill["output_token_ns"] is None
        assert prefill["throughput"] == pytest.approx(3 * 16 / prefill["latency_median_ns"] * 1e9)
        assert decode["first_token_ns"] is None
        assert decode["output_token_ns"] == decode["latency_median_ns"] / 2
        assert decode["throughput"] == pytest.approx(3 * decode["sequence_throughput"])
        assert (decode["context_length"], longer["context_length"]) == (32, 64)
        assert decode["kv_cache_bytes"] == 3 * 34 * 2 * (2 * 2 * 16) * 4  # 2 new tokens stay until it is put back
        assert decode["activation_bytes"] == decode["memory_peak_bytes"] - decode["memory_allocated_bytes"]
        assert json.loads(decode["language_facts"])["batch_size"] == 3

    def test_fits_an_exponent_over_the_context(self, folder: Path) -> None:
        done = ran("bench", str(folder), "--format", "json")
        assert any(row["varied"] == "context_length" for row in rows_of(done))

    def test_names_the_context_of_each_series_over_the_batch(self, tmp_path: Path) -> None:
        run = str(tmp_path / "batches")
        asked = ("--phase", "decode", "--context-length", "32,64", "--batch-size", "1,2", *QUICK, "-o", run)
        assert ran("bench", LLAMA, *SMALL, *asked).exit_code == 0
        rows = rows_of(ran("bench", run, "--format", "json"))
        assert [row["context_length"] for row in rows if row["varied"] == "batch"] == [32, 64]

    def test_says_what_mfu_and_mbu_are_of_where_the_machine_is_known(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = read_bench(folder / "bench.parquet").to_pylist()
        unknown, notes = with_utilisation(rows)
        assert all(row.get("mfu") is None for row in unknown) or notes
        machine = machine_files.find_machine("h100-sxm")
        monkeypatch.setattr("ncu_tools.model.language.measured_points._machine", lambda row: machine)
        found, notes = with_utilisation(rows)
        for row in found:
            assert 0 < row["mfu"] < 1e-3
            assert row["of_the_roof"] == max(row["mfu"], row["mbu"])
        assert "attention causal" in " ".join(notes)
        assert "time and tokens per second are medians" in " ".join(notes)
        assert "on h100-sxm MFU is of 66.9 TFLOP/s (FP32, data sheet, dense) and MBU is of 3350 GB/s" in notes

    def test_has_mfu_and_mbu_of_the_time_of_a_token_by_arithmetic_on_paper(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machine = machine_files.find_machine("h100-sxm")
        monkeypatch.setattr("ncu_tools.model.language.measured_points._machine", lambda row: machine)
        decode = with_utilisation(read_bench(folder / "bench.parquet").to_pylist())[0][1]
        # 3 sequences, 2 steps from 32 tokens on, 2 layers: q, k, v, o, gate, up, down; and the LM head
        matrices = 2 * (64 * 64 + 64 * 32 + 64 * 32 + 64 * 64 + 3 * 64 * 96)
        flops = 3 * (2 * 2 * (matrices + 64 * 500) + 4 * 64 * (33 + 34) * 2)
        weights = 2 * 4 * (matrices + 64 * 500 + 5 * 64 + 3 * 64)  # with five norms, and a row for each token
        cache = 3 * 2 * 64 * 4 * (32 + 33 + 2)  # read, and written
        ends = 2 * (2 * 128 + 2 * 96 + 3 * 160) + 564 + 2 * 64 * 2
        seconds = 2 * decode["output_token_ns"] / 1e9
        assert decode["mfu"] == pytest.approx(flops / seconds / 66.9e12)
        assert decode["mbu"] == pytest.approx((weights + cache + 3 * 2 * 4 * ends) / seconds / 3.35e12)


def test_a_profile_of_both_phases_has_layers_with_the_time_of_each(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    done = ran(
        "profile", LLAMA, *SMALL, "--phase", "prefill,decode", "--prompt-length", "16", "--tool", "operators",
        "--on", "cpu", "-o", run,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "in prefill it gives logits of the last token only" in done.stderr
    root = rows_of(ran("hotspots", "--by", "layer", run, "--depth", "0", "--format", "json"))[0]
    assert root["prefill_ns"] > 0
    assert root["decode_ns"] > 0
    assert root["forward_ns"] is None
    decode = rows_of(ran("hotspots", run, "--phase", "decode", "--format", "json"))
    assert decode


def test_points_of_a_profile_can_vary_the_context(tmp_path: Path) -> None:
    done = ran(
        "profile", LLAMA, *SMALL, "--phase", "decode", "--vary", "context_length=8,16", "--tool", "operators",
        "--on", "cpu", "-o", str(tmp_path / "run"), "--format", "json",
    )  # fmt: skip
    assert len(rows_of(done)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("estimate resnet18 --phase decode", "resnet18 has no decode: it is no language model"),
        ("estimate hf:gpt2 --phase decode --context-length 1024", "hf:gpt2 has 1024 positions"),
        ("estimate hf:gpt2 --phase prefill --new-tokens 4", "--new-tokens is for decode"),
        ("estimate hf:gpt2 --phase forward --weights int4", "--weights and --kv-cache are of prefill and decode"),
        ("estimate resnet18 --no-head", "--no-head is of causal language models, and resnet18 is none"),
        ("estimate resnet18 --seq-len 8", "--seq-len is of hf: models and functions, and resnet18 is none"),
        ("bench resnet18 --seq-len 8", "--seq-len is of hf: models and functions, and resnet18 is none"),
        ("profile resnet18 --seq-len 8 --dry-run", "--seq-len is of hf: models and functions, and resnet18 is none"),
        ("estimate hf:gpt2 --input-size 64", "--input-size is of images, and hf:gpt2 takes none"),
        ("estimate hf:gpt2 --phase decode --set heads=3", "has no field called heads"),
        ("bench hf:bert-base --phase prefill", "hf:bert-base has no prefill"),
        ("bench resnet18 --context-length 5 --phase decode", "--context-length is of causal language models"),
        ("profile vit_b_16 --phase decode", "vit_b_16 has no decode"),
        ("profile hf:gpt2 --phase forward,decode", "mixes two kinds of run"),
        (
            "profile hf:gpt2 --phase decode --context-length 5,6",
            "One run has one length, one cache and one quantisation",
        ),
        ("profile hf:gpt2 --phase decode --seq-len 64", "--seq-len 64 is the length of a whole forward pass"),
        ("profile hf:gpt2 --phase decode --autocast", "--autocast converts all weights in every step"),
    ],
)
def test_a_bad_combination_is_refused_in_one_paragraph(words: str, said: str) -> None:
    done = ran(*words.split())
    assert done.exit_code in (1, 2)
    assert said in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert said in last or "Nothing could be estimated" in last


def test_a_misspelt_name_beside_a_causal_model_is_said_to_be_unknown_and_the_other_is_counted() -> None:
    """Not that it keeps no KV cache, as other models."""
    wrong, right = rows_of(ran("estimate", "hf:qwen3-80b", "hf:gpt2", "--phase", "decode", "--format", "json"))
    assert wrong["failed"] == "There is no configured transformers (hf:) model called qwen3-80b."
    assert right["cache_read_bytes"] > 0
    of_a_sweep = points(Sweep(("hf:qwen3-80b", "hf:gpt2"), phases=("decode",)))
    assert [point.workload.target for point in of_a_sweep] == ["hf:qwen3-80b", "hf:gpt2"]


def test_a_program_has_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["profile", "--prompt-length", "4", "--", "python", "train.py"]
    monkeypatch.setattr("sys.argv", ["ncu-bench", *words])
    done = ran(*words)
    assert done.exit_code == 2
    assert "--prompt-length is of causal language models, and a program is none" in done.stderr


def test_a_phase_without_a_machine_has_bytes_and_no_times() -> None:
    facts = facts_in({"language": None})
    assert facts is None
    done = ran("estimate", LLAMA, *SMALL, "--phase", "decode", "--format", "json")
    row, = rows_of(done)  # fmt: skip
    assert row["bytes_per_token"] > 0
    assert row["least_token_ns"] is row["compute_bound_batch"] is None
    assert Types().weights is None
    assert language_estimate.__doc__
