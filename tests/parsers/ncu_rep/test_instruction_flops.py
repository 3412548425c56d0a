"""FLOPs from counts per instruction, where a report has neither counters nor a list of opcodes (kernel_text)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from ncu_parsers.derived.opcode_lists import named_instances
from ncu_parsers.ncu_rep.sass import kernel_text, sass_by_package
from ncu_parsers.ncu_rep.sass.kernel_text import KernelText
from ncu_parsers.ncu_rep.sass.sass_by_package import texts_by_package
from ncu_parsers.parse.parse import parse, parse_into
from ncu_parsers.sources.sources import Source

from benchmarks.package_check import check
from tests.parsers.ncu_rep.test_instances import WITH_INSTRUCTIONS, WITH_INSTRUCTIONS_BY_DAY
from tests.support.binary_reports import BEGINNING, Kernel, block_of, field, put_together, report_of, without_metrics
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, table_of

CODE = 2**40
TEXTS = (
    "FFMA R1, R2, R3, R1",
    "@P0 FADD.FTZ R1, R1, R2",
    "HADD2.F32 R1, -RZ, R2.H0_H0",
    "HMMA.16816.F32 R4, R8, R12, R4",
)
THREADS, WARPS = "thread_inst_executed_true", "inst_executed"
COUNTED: dict[str, Any] = {
    THREADS: (3200 + 160 + 64 + 320, {CODE: 3200, CODE + 16: 160, CODE + 32: 64, CODE + 48: 320, CODE + 64: 0}),
    WARPS: (100 + 10 + 2 + 10, {CODE: 100, CODE + 16: 10, CODE + 32: 2, CODE + 48: 10, CODE + 64: 0}),
    "launch__function_pcs": (1, {0: CODE}),
    "gpu__time_duration.sum": 1000,
}
LISTS = "_per_opcode"
COUNTERS = ("sass_thread_inst_executed_op", "sm__ops_path_tensor")
needs_package = pytest.mark.skipif(
    find_spec("ncu_report") is None, reason="NVIDIA's reader is missing: pip install '.[ncu-rep]'"
)


def known_as(texts: Sequence[str | None]) -> Any:
    """In place of what gives the text of instructions: these, one for each 16 bytes from CODE on."""

    def of(self: KernelText, kernel: str, addresses: Sequence[int], *more: Any) -> list[str | None]:
        return [dict(enumerate(texts)).get((address - CODE) // 16) for address in addresses]

    return of


def made(folder: Path, metrics: dict[str, Any] | None = None) -> Path:
    path = folder / "made.ncu-rep"
    path.write_bytes(report_of([Kernel(metrics={**COUNTED, **(metrics or {})})]))
    return path


def launch_of(path: Path) -> tuple[dict[str, Any], list[str]]:
    parsed = parse([Source(str(path))])
    assert parsed.table is not None
    (found,) = parsed.table.to_pylist()
    return found, parsed.reports[0].notes


def test_counts_per_instruction_are_summed_by_opcode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelText, "of", known_as(TEXTS))
    found, notes = launch_of(made(tmp_path))
    assert found[f"{THREADS} (instances)"] == "FFMA: 3200; FADD.FTZ: 160; HADD2.F32: 64; HMMA.16816.F32: 320"
    assert (found["flops_fp32"], found["flops_fp16"], found["tensor_flops_fp16"]) == (2 * 3200 + 160, 0, 10 * 4096)
    assert found["flops_basis"] == "instructions fp64+fp32+fp16; tensor ops from the shapes of opcodes"
    assert notes == []


def test_a_report_that_is_streamed_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelText, "of", known_as(TEXTS))
    monkeypatch.setattr("ncu_parsers.parse.parse.STREAMED_FROM_BYTES", 10)
    source = Source(str(made(tmp_path)))
    assert parse_into(tmp_path / "out.parquet", [source]).table is None
    whole = parse([source]).table
    assert whole is not None
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == whole.to_pylist()


COUNTER = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
ALL_COUNTERS = dict.fromkeys((COUNTER.format(kind + one) for kind in "dfh" for one in ("add", "mul", "fma")), 8)
LISTED = {
    f"sass__{name}_per_opcode_with_modifier_all": (7, {"FFMA": 7})
    for name in ("thread_inst_executed_true", "inst_executed")
}


@pytest.mark.parametrize("more", [LISTED, {**ALL_COUNTERS, "sm__ops_path_tensor_src_int8.sum": 0}], ids=str)
def test_no_text_is_asked_for_where_opcodes_are_listed_or_all_flops_were_counted(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KernelText, "of", lambda *_: pytest.fail("the text of instructions was asked for"))
    found, notes = launch_of(made(tmp_path, more))
    assert found["flops_fp32"] in (14, 8 * 4)
    assert "instructions" not in found["flops_basis"]
    assert notes == []


@pytest.mark.parametrize("missing", [COUNTER.format("hadd"), "sm__ops_path_tensor_src_int8.sum"])
def test_text_is_asked_for_where_one_counter_lacks(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KernelText, "of", known_as(TEXTS))
    counters = {**ALL_COUNTERS, "sm__ops_path_tensor_src_int8.sum": 0}
    del counters[missing]
    found, _ = launch_of(made(tmp_path, counters))
    assert f"{THREADS} (instances)" in found


def test_a_counter_goes_before_instructions_and_a_difference_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KernelText, "of", known_as(TEXTS))
    counters = dict.fromkeys((f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "fmul")), 0)
    found, notes = launch_of(made(tmp_path, {**counters, "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 1000}))
    assert (found["flops_fp32"], found["flops_fp64"]) == (2000, 0)
    assert found["flops_basis"].startswith("sass fp32; instructions fp64+fp16")
    assert "fadd instructions: in 1 of 1 launches the counter, which is used, and the opcodes differ" in notes[0]


@pytest.mark.parametrize("missing", range(len(TEXTS)))
def test_an_instruction_that_ran_and_whose_text_is_unknown_leaves_flops_unknown_with_a_note(
    missing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [None if place == missing else text for place, text in enumerate(TEXTS)]
    monkeypatch.setattr(KernelText, "of", known_as(known))
    found, (note,) = launch_of(made(tmp_path))
    assert (found["flops"], found["flops_basis"], f"{THREADS} (instances)" in found) == (None, None, False)
    assert note.startswith("1 launch has counts per instruction and none per opcode")
    assert "pip install '.[ncu-rep]'" in note
    assert "nvdisasm" in note


def test_without_the_package_and_nvdisasm_the_report_is_read_with_that_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    done = ran("hotspots", str(made(tmp_path)))
    assert done.exit_code == 0
    assert "1 launch has counts per instruction" in " ".join(done.stderr.split())


def test_nvdisasm_is_asked_with_the_code_of_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = ".text.gemm:\n" + "".join(
        f"/*{16 * place:04x}*/ {text} ;\n" for place, text in enumerate([*TEXTS, "EXIT"])
    )
    monkeypatch.setattr(kernel_text, "texts_by_package", lambda report: {})
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    codes = list[bytes]()

    def ask(command: list[str]) -> tuple[int, str]:
        codes.append(Path(command[-1]).read_bytes())
        return 0, printed

    monkeypatch.setattr("ncu_parsers.ncu_rep.sass.sass_by_nvdisasm.ask", ask)
    more = field(5, b"gemm") + field(15, field(1, 9))
    sources = [field(1, 9) + field(4, b"\x7fELF of gemm"), field(1, 9)]
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(
        put_together(BEGINNING, [block_of([Kernel(metrics=COUNTED, more=more)] * 3, [*COUNTED], sources=sources)])
    )
    table = parse([Source(str(path))]).table
    assert table is not None
    assert table.column("flops_fp32").to_pylist() == [2 * 3200 + 160] * 3
    assert codes == [b"\x7fELF of gemm"]


def test_what_the_package_breaks_down_over_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path)
    for package in ("import os; os.abort()", "raise SystemExit(3)", "def load_report(path): raise RuntimeError"):
        (tmp_path / "ncu_report.py").write_text(package)
        monkeypatch.syspath_prepend(tmp_path)
        assert texts_by_package(path) == {}


def test_a_report_that_the_package_could_not_hold_in_memory_is_not_given_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    monkeypatch.setattr(sass_by_package, "is_installed", lambda: True)
    monkeypatch.setattr(sass_by_package, "run", lambda *_, **__: pytest.fail("it was given to the package"))
    monkeypatch.setattr(sass_by_package, "REPORTS_IN_THE_LIMIT", 10**12)
    assert texts_by_package(path) == {}


# -------------------------------------------------------------------------------------------------- real reports

NUMBERS = ("flops", "flops_fp64", "flops_fp32", "flops_fp16", "tensor_flops", "tensor_ops_int8")


@needs_package
@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_INSTRUCTIONS_BY_DAY, ids=lambda path: path.name)
def test_a_real_report_without_counters_and_lists_has_the_flops_that_it_had_with_them(
    path: Path, tmp_path: Path
) -> None:
    stripped = tmp_path / "stripped.ncu-rep"
    stripped.write_bytes(
        without_metrics(path.read_bytes(), lambda name: LISTS in name or any(part in name for part in COUNTERS))
    )
    whole, found = table_of(path), parse([Source(str(stripped))]).table
    assert whole is not None
    assert found is not None
    assert not any(LISTS in name for name in found.column_names)
    for row, with_lists in zip(found.to_pylist(), whole.to_pylist(), strict=True):
        assert [row[name] for name in NUMBERS] == pytest.approx([with_lists[name] for name in NUMBERS], rel=1e-9)
        assert row["flops_basis"].startswith("instructions fp64+fp32+fp16; tensor ops from the shapes of opcodes")


@needs_package
@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_INSTRUCTIONS_BY_DAY, ids=lambda path: path.name)
def test_instructions_of_real_launches_summed_by_opcode_are_their_lists_of_opcodes(path: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.ncu-rep"
    stripped.write_bytes(without_metrics(path.read_bytes(), lambda name: LISTS in name))
    whole, found = table_of(path), parse([Source(str(stripped))]).table
    assert whole is not None
    assert found is not None
    for ours, theirs in ((THREADS, "sass__thread_inst_executed_true"), (WARPS, "sass__inst_executed")):
        summed = found.column(f"{ours} (instances)").to_pylist()
        listed = whole.column(f"{theirs}_per_opcode_with_modifier_all (instances)").to_pylist()
        for one, other in zip(summed, listed, strict=True):
            assert named_instances(one) == {name: count for name, count in named_instances(other).items() if count}


@needs_package
@needs_shared_reports
@pytest.mark.slow
def test_check_has_nothing_to_compare_with_what_was_summed_here(tmp_path: Path) -> None:
    (path,) = (path for path in WITH_INSTRUCTIONS if "IndexSpaces" in path.name)
    stripped = tmp_path / "stripped.ncu-rep"
    stripped.write_bytes(without_metrics(path.read_bytes(), lambda name: LISTS in name))
    assert [one for one in check(Source(str(stripped))).differences if not one.why] == []
