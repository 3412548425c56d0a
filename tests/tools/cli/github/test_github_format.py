"""--format github of `compare` and `history`: Markdown for people, annotations for the runner."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.cli.github.annotations import PlacedOutcome, commands, placed
from ncu_tools.cli.github.markdown import gates_in_markdown, quiet
from ncu_tools.compare.gate import NOT_EVALUATED, TRIPPED, GateOutcome, evaluate, parse_gate
from ncu_tools.kernels.source.kernel_lines import SourceLine, _launching, kernel_lines
from ncu_tools.numbers.change import Change, Subject, Subjects
from tests.conftest import SAMPLES
from tests.support.kept_sass import BINARIES, use_no_disassembler
from tests.support.ran import ran

OLD, NEW = str(SAMPLES / "d02-long-rules.csv"), str(SAMPLES / "d10-details-all.csv")
HOSTILE = "evil\n::error::owned<script>@octocat,#1 https://example.org | `x` %0A"


@pytest.fixture
def slower(tmp_path: Path) -> str:
    """A report in which sgemm_tiled takes twice the time."""
    text = (SAMPLES / "d10-details-all.csv").read_text("utf-8")
    assert text.count('"693.87"') == 1
    path = tmp_path / "slower.csv"
    path.write_text(text.replace('"693.87"', '"1387.74"'), "utf-8")
    return str(path)


def test_tells_the_gates_then_what_changed_and_folds_the_rest(slower: str) -> None:
    done = ran("compare", OLD, slower, "--fail-on", "any:time>5%", "--format", "github")
    assert done.exit_code == 3
    head, *_ = done.stdout.splitlines()
    assert head == "### ncu-bench: 1 of 1 tripped"
    above, _, below = done.stdout.partition("<details>")
    assert re.search(r"\| sgemm\\_tiled \|.* 693.9 µs → 1.388 ms \|.*\| ▲ slower", above)
    assert "elementwise relu fp32" in below
    assert "elementwise relu fp32" not in above
    assert done.stdout.count("<details>") == done.stdout.count("</details>") == 2


def test_annotates_each_gate_that_did_not_hold(slower: str) -> None:
    gates = ("--fail-on", "any:time>5%", "--fail-on", "time>900%", "--fail-on", "kernel:gone:time>5%")
    done = ran("compare", OLD, slower, *gates, "--format", "github")
    told = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert [line.split(" ")[0] for line in told] == ["::error", "::warning"]
    assert told[0].startswith("::error title=ncu-bench%3A any%3Atime>5%25::tripped: sgemm_tiled: ")


def test_of_runs_without_a_change_folds_all_rows() -> None:
    done = ran("compare", OLD, NEW, "--fail-on", "any:time>5%", "--format", "github")
    assert done.exit_code == 0
    assert done.stdout.startswith("### ncu-bench: 1 gate held")
    assert "4 rows without a change" in done.stdout


def test_of_a_history_tells_its_changes(slower: str) -> None:
    done = ran("history", OLD, slower, "--fail-on", "any:time>5%", "--format", "github")
    assert done.exit_code == 3
    assert "| any:time\\>5% | ❌ tripped |" in done.stdout


def test_of_two_builds_annotates_the_lines_of_their_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_no_disassembler(monkeypatch)
    shutil.copy(BINARIES / "kernels.cu", tmp_path / "kernels.cu")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    builds = [str(BINARIES / f"{name}.sm_90.cubin") for name in ("changed", "kernels")]
    done = ran("compare", *builds, "--fail-on", "registers>0", "--format", "github")
    assert done.exit_code == 3
    assert "| quotient | sm\\_90 | bytes differ | 14 → 16 |" in done.stdout
    assert "::error file=kernels.cu,line=48,title=ncu-bench%3A registers>0::quotient is slower or larger" in done.stderr


def test_a_comment_needs_the_format_github() -> None:
    done = ran("compare", OLD, NEW, "--comment")
    assert done.exit_code == 2
    assert "--comment goes with --format github" in done.stderr


def outcome(name: str = HOSTILE, how: str = TRIPPED) -> GateOutcome:
    return GateOutcome(parse_gate("any:time>5%"), how, f"{name}: time 1 ms -> 2 ms", subjects=(name,))


def test_the_kernels_of_an_outcome_have_their_names_of_the_new_run() -> None:
    kernels = [
        Subject((f"new_{at}", f"old_{at}"), {"time": Change("time", 1e3, time)}) for at, time in enumerate((9e3, 1e3))
    ]
    found = evaluate(parse_gate("any:time>5%"), Subjects("kernel", kernels))
    assert (found.outcome, found.subjects) == (TRIPPED, ("new_0",))


def test_a_name_in_a_report_is_no_command_and_no_mention() -> None:
    one = PlacedOutcome(outcome(), {HOSTILE: SourceLine("a,b:c%.cu", 7)})
    (line,) = commands([one])
    assert "\n" not in line
    assert line.startswith("::error file=a%2Cb%3Ac%25.cu,line=7,title=ncu-bench%3A any%3Atime>5%25::")
    text = gates_in_markdown({"new": [one]})
    assert not re.search(r"@\w|#\d|://|<script>", text.replace("ncu-bench: ", ""))


@given(st.text())
def test_whatever_a_gate_says_is_one_command(text: str) -> None:
    (line,) = commands([PlacedOutcome(outcome(text, NOT_EVALUATED), {})])
    assert line.count("\n") == line.count("\r") == 0
    message = line.partition("::warning title=ncu-bench%3A any%3Atime>5%25::")[2]
    restored = message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    assert restored == f"not evaluated: {text}: time 1 ms -> 2 ms"


@given(st.text())
def test_no_text_mentions_or_links(text: str) -> None:
    assert not re.search(r"@\w|#\d|://|www\.", quiet(text))


class TestSourceLines:
    def test_of_a_launch_from_python_are_linked_and_annotated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
        monkeypatch.setenv("GITHUB_SHA", "abc")
        (tmp_path / "nets").mkdir()
        (tmp_path / "nets" / "a b.py").touch()
        monkeypatch.setattr(
            "ncu_tools.cli.github.annotations.kernel_lines",
            lambda run, names: {name: SourceLine("/runner/checkout/r/nets/a b.py", 12) for name in names},
        )
        (one,) = placed("new", [outcome("gemm")], tmp_path)
        assert one.lines == {"gemm": SourceLine("nets/a b.py", 12)}
        assert "(https://github.com/o/r/blob/abc/nets/a%20b.py#L12)" in gates_in_markdown({"new": [one]})

    @pytest.mark.parametrize("file", ["/etc/passwd", "../a.py", "/x/../a.py", "nowhere.cu"])
    def test_of_files_outside_the_checkout_are_left_out(
        self, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ncu_tools.cli.github.annotations.kernel_lines", lambda *_: {"gemm": SourceLine(file, 1)})
        (tmp_path / "checkout").mkdir()
        (tmp_path / "a.py").touch()
        (one,) = placed("new", [outcome("gemm")], tmp_path / "checkout")
        assert one.lines == {}

    def test_of_a_kernel_is_its_hottest_by_its_instructions(self) -> None:
        name = "conflicts(const float *, float *, int)"
        found = kernel_lines(str(SAMPLES / "h100" / "conflicts.ncu-rep"), {name, "other"})
        assert found == {name: SourceLine("/xxx/x/xxxxxxxx/kernels.cu", 47)}

    def test_of_a_run_that_cannot_be_read_are_none(self, tmp_path: Path) -> None:
        assert kernel_lines(str(tmp_path / "nowhere"), {"gemm"}) == {}

    def test_of_launches_from_python_is_the_commonest(self) -> None:
        rows = pa.table(
            {
                "kernel_name": ["gemm", "gemm", "gemm", "relu", "copy"],
                "python_file": ["a.py", "b.py", "b.py", "c.py", None],
                "python_line": pa.array([1, 2, 2, 3, None], pa.int32()),
            }
        )
        assert _launching(rows, {"gemm", "copy"}) == {"gemm": SourceLine("b.py", 2)}
