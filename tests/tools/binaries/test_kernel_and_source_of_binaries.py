"""`kernel` and `source` of compiled code, as users type them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ncu_parsers.binaries.code_files import CodeReading, kernels_in
from ncu_parsers.binaries.code_of_report import launched_kernels
from ncu_parsers.ncu_rep import code_in
from ncu_parsers.sources.sources import Source

from ncu_tools.binaries.joined_with_report import is_launch_of, joined
from tests.conftest import SAMPLES
from tests.support.kept_sass import BINARIES, use_kept_sass, use_no_disassembler
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, reports_with_code, table_of

CUBIN = str(BINARIES / "kernels.sm_90.cubin")


@pytest.fixture(autouse=True)
def _with_kept_sass(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kept_sass(monkeypatch)


def rows_of(*words: str) -> list[dict[str, object]]:
    done = ran(*words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, object]] = json.loads(done.stdout)["rows"]
    return rows


def test_kernels_are_listed_with_the_most_spills_first() -> None:
    rows = rows_of("kernel", CUBIN)
    assert len(rows) == 12
    assert (rows[0]["kernel"], rows[0]["registers"], rows[0]["spill_bytes"], rows[0]["stack_bytes"]) == (
        "crowded",
        64,
        520,
        128,
    )
    assert rows[0]["theoretical_occupancy"] == 0.5
    assert rows[0]["limited_by"] == "registers"


def test_the_text_names_kernels_and_says_what_was_assumed() -> None:
    done = ran("kernel", CUBIN, "--sort", "registers", "--top", "3")
    assert done.exit_code == 0
    assert "kernels.sm_90.cubin: 12 kernels, sm_90" in done.stdout
    assert "256 threads where neither launch bounds nor metadata say" in done.stderr
    assert "9 more kernels" in done.stderr


def test_one_kernel_is_shown_whole() -> None:
    done = ran("kernel", CUBIN, "crowded")
    assert "By code alone" in done.stdout
    for words in (
        "520 B  236 stored, 284 loaded",
        "spills at kernels.cu:35",
        "1,024 threads",
        "local store, 8 B",
        "loop 0x",
    ):
        assert words in done.stdout, words
    values = {row["key"]: row["value"] for row in rows_of("kernel", CUBIN, "crowded")}
    assert (values["spill_bytes"], values["instructions"], values["local_store_8"]) == (520, 363, 3)


def test_without_a_disassembler_resources_are_shown_and_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_no_disassembler(monkeypatch)
    done = ran("kernel", CUBIN, "crowded")
    assert done.exit_code == 0
    assert "520 B" in done.stdout
    assert "pip install triton" in done.stderr
    assert ran("source", CUBIN).exit_code == 1


def test_a_library_of_nvidia_is_not_disassembled(tmp_path: Path) -> None:
    path = tmp_path / "libcublasLt.so.13"
    shutil.copy(CUBIN, path)
    done = ran("kernel", str(path), "crowded")
    assert done.exit_code == 0
    assert "licence of cuBLAS forbids disassembly" in done.stderr
    assert "instructions in the code" not in done.stdout
    assert ran("source", str(path)).exit_code == 2
    assert "only kernels of cuBLAS" in ran("advise", str(path)).stderr


def test_prints_and_ptx_and_folders_are_read_too(tmp_path: Path) -> None:
    assert len(rows_of("kernel", str(BINARIES / "ptxas.printed"))) == 12
    done = ran("kernel", str(BINARIES / "kernels.ptx"))
    assert "as PTX alone" in done.stderr
    assert f"ptxas --gpu-name sm_86 {BINARIES / 'kernels.ptx'} -o FILE.cubin" in done.stderr
    shutil.copy(CUBIN, tmp_path / "one.cubin")
    shutil.copy(BINARIES / "zstd.fatbin", tmp_path / "two.fatbin")
    assert len(rows_of("kernel", str(tmp_path))) == 36
    shutil.copy(CUBIN, tmp_path / "other.cubin")
    assert "crowded in other.cubin" in ran("kernel", str(tmp_path)).stdout
    assert {row["architecture"] for row in rows_of("kernel", str(tmp_path), "--arch", "sm_120")} == {"sm_120"}


def test_spills_of_older_compilers_are_unknown_and_that_is_said() -> None:
    rows = rows_of("kernel", str(BINARIES / "old.sm_86.cubin"))
    assert {row["kernel"]: row["spill_bytes"] for row in rows if row["kernel"] in ("crowded", "copy")} == {
        "crowded": None,
        "copy": 0,
    }
    assert "before CUDA 12.6" in ran("kernel", str(BINARIES / "old.sm_86.cubin")).stderr


def test_a_name_that_no_kernel_has_is_refused_with_those_that_there_are() -> None:
    done = ran("kernel", CUBIN, "nothing_like_it")
    assert done.exit_code == 1
    assert "It holds, among others: " in done.stderr


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.cubin"
    path.write_bytes(Path(CUBIN).read_bytes()[:3000])
    done = ran("kernel", str(path))
    assert done.exit_code == 1
    assert "cut: " in done.stderr


@pytest.mark.parametrize("command", ["hotspots", "roofline", "timeline"])
def test_commands_on_runs_say_what_takes_code(command: str) -> None:
    for name in ("kernels.sm_90.cubin", "lz4.fatbin", "kernels.ptx"):
        done = ran(command, str(BINARIES / name))
        assert done.exit_code in (1, 2)
        assert "is compiled code, and no report" in done.stderr


def test_source_shows_lines_with_spills_and_live_registers() -> None:
    rows = {row["place"]: row for row in rows_of("source", CUBIN, "--kernel", "crowded")}
    assert rows["kernels.cu:35"]["local_bytes"] == 228
    assert rows["kernels.cu:35"]["live_registers"] == 62


def test_source_shows_texts_of_lines_below_a_folder() -> None:
    done = ran("source", CUBIN, "--kernel", "quotient", "--source-root", str(BINARIES))
    assert "to[i] = up[i] / down[i];" in done.stdout


def test_source_shows_instructions_around_an_offset() -> None:
    rows = rows_of("source", CUBIN, "--kernel", "copy$", "--around", "0x40")
    assert [row["offset"] for row in rows] == list(range(0, 0xD0, 16))


def test_source_of_several_kernels_takes_the_largest_and_says_so() -> None:
    done = ran("source", CUBIN)
    assert "crowded" in done.stdout
    assert "11 more kernels: --kernel and --arch choose" in done.stderr


@pytest.mark.parametrize("output", ["text", "json", "csv", "markdown"])
def test_every_format_has_the_kernel(output: str) -> None:
    for words in (("kernel", CUBIN), ("kernel", CUBIN, "crowded"), ("source", CUBIN, "--kernel", "crowded")):
        done = ran(*words, "--format", output)
        assert done.exit_code == 0
        assert done.stdout.count("\n") > 3


class TestWithAReport:
    """A kernel's code beside a launch that was measured on an H100."""

    REPORT = str(SAMPLES / "h100" / "conflicts.ncu-rep")

    @pytest.fixture
    def cubin(self, tmp_path: Path) -> Path:
        path = tmp_path / "conflicts.cubin"
        path.write_bytes(next(code.cubin for code in code_in(Source(self.REPORT)) if code.cubin))
        return path

    def test_has_registers_blocks_per_sm_and_occupancy_of_both(self, cubin: Path) -> None:
        rows = rows_of("kernel", str(cubin), "conflicts", "--with", self.REPORT)
        joined = {row["key"]: (row["value"], row["measured"]) for row in rows if row["part"] == "joined"}
        assert joined["joined_registers"] == (14, 16)
        assert joined["joined_shared"] == (4096, 4096)
        blocks, measured = joined["joined_blocks"]
        assert isinstance(blocks, int)
        assert isinstance(measured, float)
        assert 0 < measured <= blocks
        occupancy = {str(row["key"]): str(row["against"]) for row in rows}["joined_occupancy"]
        assert f"{100 * float(str(joined['joined_occupancy'][0])):.1f} % by ncu" in occupancy

    def test_says_whether_the_report_ran_this_code(self, cubin: Path, tmp_path: Path) -> None:
        assert "the report ran this very code" in ran("kernel", str(cubin), "conflicts", "--with", self.REPORT).stderr
        (found,) = [one for one in kernels_in(cubin, CodeReading()) if one.resources.name == "_Z9conflictsPKfPfi"]
        changed = replace(found.resources, code_digest="other")
        assert joined(changed, self.REPORT, None).code.startswith("the report ran other code than this")
        other = replace(changed, architecture="sm_80")
        assert joined(other, self.REPORT, None).code == "the report ran code for sm_90, not for sm_80"

    def test_of_another_kernel_is_refused_with_those_that_there_are(self) -> None:
        done = ran("kernel", CUBIN, "copy_wide", "--with", self.REPORT)
        assert done.exit_code == 1
        assert "It has launches of: conflicts" in done.stderr

    def test_of_several_kernels_is_refused(self) -> None:
        assert ran("kernel", CUBIN, "--with", self.REPORT).exit_code == 2


@pytest.mark.parametrize(
    ("mangled", "name", "is_one"),
    [
        ("_Z4gemmILi128ELb0EEvPfS0_", "void gemm<(int)128, (bool)0>(float *, float *)", True),
        ("_Z4gemmILi128ELb0EEvPfS0_", "void gemm<(int)64, (bool)0>(float *, float *)", False),
        ("_Z15testInnerStructPK10innerArrayPS_j", "testInnerStruct(const innerArray *, innerArray *, unsigned int)", True),
        ("_ZN1a4copyIfEEvPT_", "a::copy", True), ("_ZN1a4copyIfEEvPT_", "copy", True), ("_ZN1a4copyIfEEvPT_", "cop", False),
        ("softmax", "softmax", True),
    ],
)  # fmt: skip
def test_a_launch_is_known_by_its_name_in_the_spelling_of_ncu(mangled: str, name: str, is_one: bool) -> None:
    assert is_launch_of(mangled, name) is is_one


@pytest.mark.nightly
@needs_shared_reports
def test_mangled_names_in_real_reports_match_the_names_that_ncu_wrote() -> None:
    pairs = set[tuple[str, str]]()
    for report in reports_with_code():
        table = table_of(report)
        assert table is not None, report.name
        names = table["kernel_name"].to_pylist()
        pairs |= {(one.mangled, name) for one, name in zip(launched_kernels(Source(str(report))), names, strict=True)}
    other = {mangled for mangled, name in pairs if mangled.startswith("_Z") and not is_launch_of(mangled, name)}
    assert len(pairs) >= 100
    assert len(other) <= 1  # ncu writes parameters of a lambda by the number of its template argument
