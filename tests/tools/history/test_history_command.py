"""`ncu-bench history` on folders: their order, what is kept, what is left out, and what each format says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parquet.reader import read_beside
from ncu_parsers.schema.tables import table_metadata

from tests.support.histories import counted, run_folder, times
from tests.support.ran import ran

KEYS = ["run", "commit", "kernel", "quantity", "before", "after", "change", "cause", "evidence"]


def day(number: int) -> str:
    return f"2026-03-{number:02}T10:00:00+00:00"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Ten nightly runs, by names that are not in their order; from the seventh on with more registers and slower."""
    for number, us in enumerate(times(10, 100, 0.3)):
        slower = number >= 6
        launches = counted("gemm", us * (1.2 if slower else 1), registers=40 if slower else 32)
        commit = f"{number:040x}", day(number + 1)
        run_folder(tmp_path / "runs" / f"x{9 - number}", launches, day(20), commit)
    return tmp_path / "runs"


def rows(*words: str) -> list[dict[str, Any]]:
    done = ran("history", *words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


class TestTheTable:
    def test_has_a_row_per_change_with_exactly_these_keys(self, runs: Path) -> None:
        found = rows(str(runs))
        assert [(one["quantity"], one["run"], one["cause"]) for one in found] == [
            ("registers", "x3", "code"), ("cycles", "x3", "code"), ("time", "x3", "code"),
        ]  # fmt: skip
        assert list(found[0]) == KEYS
        assert found[0] == {
            "run": "x3", "commit": f"{6:040x}", "kernel": "gemm", "quantity": "registers", "before": 32.0, "after": 40.0,
            "change": 0.25, "cause": "code", "evidence": "registers 32 -> 40 (+25.0 %)",
        }  # fmt: skip
        assert found[2]["change"] == pytest.approx(0.2, abs=0.01)

    def test_says_in_words_what_json_says_in_numbers_and_evidence_once(self, runs: Path) -> None:
        text = ran("history", str(runs), "--format", "markdown").stdout
        assert "10 runs" in text
        assert "10 commits, 1 kernel, 3 changes: 3 code" in text
        assert text.count("registers 32") == 1
        assert "+25.0 %" in text

    def test_calls_the_column_of_names_by_what_the_series_are_of(self, runs: Path) -> None:
        for by in ("kernel", "category", "step"):
            for words in ((), ("--series",)):
                lines = ran("history", str(runs), "--by", by, *words, "--format", "markdown").stdout.splitlines()
                header = next(line for line in lines if line.startswith("| run"))
                assert f"| {by} |" in header

    def test_is_limited_to_kernels_quantities_and_causes(self, runs: Path) -> None:
        assert [one["quantity"] for one in rows(str(runs), "--quantity", "time,registers")] == ["registers", "time"]
        assert rows(str(runs), "--cause", "noise,machine") == []
        assert len(rows(str(runs), "--kernel", "g.mm", "--top", "1")) == 1

    def test_of_a_kernel_that_no_run_has_is_refused_with_those_there_are(self, runs: Path) -> None:
        done = ran("history", str(runs), "--kernel", "softmax", "--fail-on", "any:time>3%")
        assert done.exit_code == 1
        assert "No kernel of the runs has a name with softmax. There are gemm." in " ".join(done.stderr.split())

    def test_is_limited_to_kernels_by_the_names_that_it_shows_too(self, tmp_path: Path) -> None:
        name = "void softmax_warp_forward<float, float, float, 10, false, false>(float *, const float *, int, int, int)"
        for number in range(2):
            run_folder(tmp_path / str(number), counted(name), day(number + 1), (f"{number:040x}", day(number + 1)))
        assert rows(str(tmp_path), "--kernel", "softmax_warp_forward fp32", "--series", "--quantity", "launches")

    def test_of_series_has_a_row_per_run_kernel_and_quantity(self, runs: Path) -> None:
        found = rows(str(runs), "--series", "--quantity", "registers")
        assert list(found[0]) == ["run", "commit", "kernel", "quantity", "value"]
        assert [one["value"] for one in found] == [32] * 6 + [40] * 4
        assert [one["run"] for one in found] == [f"x{9 - number}" for number in range(10)]

    def test_says_that_nothing_changed(self, tmp_path: Path) -> None:
        for number in range(3):
            run_folder(tmp_path / f"r{number}", counted("gemm", 100), day(number + 1))
        done = ran("history", str(tmp_path))
        assert (done.exit_code, "no change found" in done.stdout) == (0, True)
        assert "one run is no history" in ran("history", str(tmp_path / "r1")).stderr

    def test_says_where_runs_are_too_few_for_a_change_of_times(self, tmp_path: Path) -> None:
        for number in range(6):
            run_folder(tmp_path / f"r{number}", counted("gemm", 100), day(number + 1))
        few = [str(tmp_path / f"r{number}") for number in range(5)]
        assert "5 runs are too few to find a change of times: with 1 kernel, it takes 6" in ran("history", *few).stderr
        assert "too few" not in ran("history", str(tmp_path)).stderr

    def test_takes_registers_as_exact_however_often_they_move(self, tmp_path: Path) -> None:
        for number, registers in enumerate((32, 40, 32, 40, 32, 40)):
            run_folder(tmp_path / f"r{number}", counted("gemm", registers=registers), day(number + 1))
        found = [one for one in rows(str(tmp_path)) if one["quantity"] == "registers"]
        assert {(one["before"], one["after"]) for one in found} == {(32.0, 40.0), (40.0, 32.0)}
        assert len(found) == 5

    def test_says_of_counts_that_move_in_most_runs_that_they_may_vary_by_themselves(self, tmp_path: Path) -> None:
        for number, instructions in enumerate((5e6, 4e6, 3e6, 2e6, 1e6, 9e5)):
            run_folder(tmp_path / f"r{number}", counted("gemm", instructions=instructions), day(number + 1))
        answer = json.loads(ran("history", str(tmp_path), "--format", "json").stdout)
        assert len([one for one in answer["rows"] if one["quantity"] == "instructions"]) == 5
        assert any("counts of gemm move in more than a third of the runs" in note for note in answer["notes"])


class TestTheOrder:
    def test_is_that_of_commits_before_that_of_the_runs_own_dates(self, tmp_path: Path) -> None:
        run_folder(tmp_path / "a", counted("k"), day(9), ("c" * 40, day(1)))
        run_folder(tmp_path / "b", counted("k"), day(3))
        run_folder(tmp_path / "c", counted("k"), day(2), ("d" * 40, day(5)))
        found = rows(str(tmp_path), "--series", "--quantity", "launches")
        assert [one["run"] for one in found] == ["a", "b", "c"]

    def test_is_that_of_files_as_a_last_resort_and_says_so(self, tmp_path: Path) -> None:
        for number, name in enumerate(("b", "a", "c")):
            folder = run_folder(tmp_path / name, counted("k"))
            os.utime(folder / "launches.parquet", (1e9 + number, 1e9 + number))
        done = ran("history", str(tmp_path), "--series", "--quantity", "launches", "--format", "csv")
        assert [line.split(",")[0] for line in done.stdout.splitlines()[1:4]] == ["b", "a", "c"]
        assert "all runs are ordered by the times of files, which a copy may have changed" in done.stderr

    def test_takes_commits_that_are_said_by_hand(self, tmp_path: Path) -> None:
        run_folder(tmp_path / "runs" / "a", counted("k"))
        found = rows(str(tmp_path / "runs"), "--series", "--quantity", "launches", "--commit", "a=abc123")
        assert found[0]["commit"] == "abc123"
        wrong = ran("history", str(tmp_path), "--commit", "z=abc123")
        assert wrong.exit_code == 2
        assert "--commit z=abc123 does not name a run and its commit" in wrong.stderr


class TestWhatIsRead:
    def test_leaves_a_damaged_run_out_and_names_it(self, runs: Path) -> None:
        (runs / "x5" / "launches.parquet").write_bytes(b"PAR1 cut")
        done = ran("history", str(runs), "--format", "json")
        assert done.exit_code == 0
        assert len(json.loads(done.stdout)["rows"]) == 3
        (note,) = (one for one in json.loads(done.stdout)["notes"] if "left out" in one)
        assert note.startswith("x5 was left out: ")

    def test_ends_with_the_reason_if_no_run_can_be_read(self, tmp_path: Path) -> None:
        (run_folder(tmp_path / "a", counted("k")) / "launches.parquet").write_bytes(b"PAR1 cut")
        done = ran("history", str(tmp_path))
        assert done.exit_code == 1
        assert "could not be read as Parquet" in done.stderr
        (tmp_path / "empty").mkdir()
        assert "holds no runs" in ran("history", str(tmp_path / "empty")).stderr
        assert "does not exist" in ran("history", str(tmp_path / "nowhere")).stderr

    def test_keeps_sums_beside_a_run_and_makes_them_anew_when_it_changed(self, runs: Path) -> None:
        first = rows(str(runs))
        kept = runs / "x5" / "history.parquet"
        table = read_beside(kept)
        assert table is not None
        assert table_metadata(table)["history"]["made_of"][0] == "1"
        assert rows(str(runs)) == first
        stamp = kept.stat().st_mtime_ns
        assert rows(str(runs)) == first
        assert kept.stat().st_mtime_ns == stamp
        os.utime(runs / "x5" / "launches.parquet", (1, 1))
        assert rows(str(runs)) == first
        assert kept.stat().st_mtime_ns != stamp

    @pytest.mark.parametrize("harm", [b"", b"PAR1 something else", None])
    def test_does_not_mind_damaged_sums(self, runs: Path, harm: bytes | None) -> None:
        first = rows(str(runs))
        kept, other = runs / "x5" / "history.parquet", runs / "x1" / "launches.parquet"
        kept.write_bytes(other.read_bytes() if harm is None else harm)
        assert rows(str(runs)) == first

    def test_takes_reports_and_tables_beside_each_other_as_runs(self, tmp_path: Path) -> None:
        report = '"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","k","1000"\n'
        (tmp_path / "a.csv").write_text(report)
        folder = run_folder(tmp_path / "deep" / "er", counted("k", 1))
        (folder / "launches.parquet").rename(tmp_path / "b.parquet")
        found = rows(str(tmp_path), "--series", "--quantity", "time")
        assert {(one["run"], one["value"]) for one in found} == {("a.csv", 1000.0), ("b.parquet", 1000.0)}

    def test_takes_runs_that_are_named_one_by_one(self, runs: Path) -> None:
        found = rows(str(runs / "x9"), str(runs / "x0"), "--quantity", "registers")
        assert [(one["run"], one["before"], one["after"]) for one in found] == [("x0", 32, 40)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--quantity", "speed"], "--quantity speed is not known. Choose of launches, instructions"),
        (["--cause", "luck"], "--cause luck is not known. Choose of code, method, machine, noise"),
        (["--kernel", "("], "is no regular expression"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_ones(runs: Path, words: list[str], said: str) -> None:
    done = ran("history", str(runs), *words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_files_of_pytest_benchmark_are_runs_of_points_by_their_commits(tmp_path: Path) -> None:
    for number, us in enumerate([*times(25, 100, 0.5), *times(8, 110, 0.5)]):
        point = {"name": "t", "fullname": "b.py::t", "stats": {"mean": us * 1e-6, "stddev": 1e-7, "rounds": 50}}
        commit = {"id": f"{number:040x}", "time": f"2026-03-01T{number // 2:02}:{30 * (number % 2):02}:00+00:00"}
        file = {"machine_info": {"node": "ci"}, "commit_info": commit, "benchmarks": [point], "datetime": day(9)}
        (tmp_path / f"{99 - number}.json").write_text(json.dumps(file))
    (one,) = rows(str(tmp_path))
    assert (one["run"], one["commit"], one["kernel"], one["quantity"]) == ("74.json", f"{25:040x}", "b.py::t", "time")
    assert one["change"] == pytest.approx(0.1, abs=0.01)
    assert one["cause"] == "unknown"
    assert "no counters were collected" in one["evidence"]
