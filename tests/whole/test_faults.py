"""Faults: full disks, lost permissions, kills, clocks that jump, tools that misbehave. Every file stays whole, every
error is a paragraph, and the same command completes afterwards. `python -m tests.support.faults` kills many more times.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.files.manifest import Manifest, ToolRun
from ncu_launch.files.run_files import LOGS
from ncu_launch.files.run_folder import make_folder, writing
from ncu_launch.profile.run_outcome import explain
from ncu_launch.profilers import subprocesses
from ncu_launch.profilers.subprocesses import lines_of
from ncu_launch.workload.meta_device_process import errors_written
from ncu_parsers.parquet.reader import read_launches

from ncu_tools.cli import run
from tests.conftest import SAMPLES
from tests.support.faults import MODEL, SCENARIOS, damaged, kill
from tests.support.nightly import by_day
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH, Result
from tests.whole.test_hostile import AS_ANYBODY, MAIN
from tests.whole.test_house import MODULES
from tests.whole.test_profile_with_a_stand_in import Bench

pytestmark = pytest.mark.slow

RAW = str(SAMPLES / "d01-wide-raw.csv")
PROFILE = ("profile", "model.py:make", "--tool", "operators", "--phase", "forward", "-o", "out")
SWEEP = ("bench", "model.py:make", "--max-time", "0.05", "--processes", "1", "--on", "cpu", "-o", "out")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def called(
    folder: Path, *arguments: str, program: list[str] = PROGRAM, before: Callable[[], None] | None = None
) -> Result:
    done = subprocess.run(
        [*program, *arguments], cwd=folder, capture_output=True, timeout=100, preexec_fn=before,
        # Byte code that a full disk cut short would stay, and end every later import of its module.
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def is_a_paragraph(result: Result) -> bool:
    return result.code == 1 and "Traceback" not in result.err and result.err.splitlines()[-1].startswith("Error: ")


def small_files_only() -> None:
    """Files are limited to 2 kB, which fails like a full disk: in the middle of a write."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))


class TestAFullDisk:
    @pytest.mark.parametrize(
        "words",
        by_day(
            [["parse", RAW, "-o", "launches.parquet"], ["report", RAW, "-o", "r.html"]],
            [
                ["parse", RAW, "-o", "launches.parquet"],
                ["roofline", RAW, "-o", "r.svg"],
                ["report", RAW, "-o", "r.html"],
                ["report", RAW, "--as", "csv", "-o", "e.csv"],
            ],
        ),
        ids=lambda words: words[0],
    )
    def test_ends_in_one_paragraph_and_keeps_existing_files(self, words: list[str], tmp_path: Path) -> None:
        (tmp_path / words[-1]).write_bytes(b"what was there")
        result = called(tmp_path, *words, before=small_files_only)
        assert is_a_paragraph(result), result.err
        assert words[-1] in result.err
        assert [(file.name, file.read_bytes()) for file in tmp_path.glob("*.*") if file.is_file()] == [
            (words[-1], b"what was there")
        ]

    @pytest.mark.nightly
    def test_during_a_profile_ends_in_one_paragraph_and_leaves_only_whole_files(self, tmp_path: Path) -> None:
        (tmp_path / "model.py").write_text(MODEL)
        result = called(tmp_path, *PROFILE, before=small_files_only)
        assert is_a_paragraph(result), result.err
        assert damaged(tmp_path / "out") == []
        assert not list((tmp_path / "out").glob("*.parquet"))


class TestPermissions:
    @pytest.mark.nightly
    def test_lost_while_a_program_runs_end_in_one_paragraph(self, tmp_path: Path) -> None:
        (tmp_path / "model.py").write_text(f"import os; os.chmod({str(tmp_path / 'out')!r}, 0o555)\n{MODEL}")
        anybody = [sys.executable, "-c", AS_ANYBODY, MAIN]
        result = called(tmp_path, *PROFILE, program=anybody)
        (tmp_path / "out").chmod(0o755)
        assert is_a_paragraph(result), result.err
        assert damaged(tmp_path / "out") == []
        assert not list((tmp_path / "out").glob("*.parquet"))

    def test_missing_for_one_file_do_not_stop_the_others(self, tmp_path: Path) -> None:
        (tmp_path / "secret.csv").write_bytes(Path(RAW).read_bytes())
        (tmp_path / "secret.csv").chmod(0)
        words = ("parse", "secret.csv", RAW, "-o", "launches.parquet")
        result = called(tmp_path, *words, program=[sys.executable, "-c", AS_ANYBODY, MAIN])
        assert is_a_paragraph(result), result.err
        assert "secret.csv could not be read: Permission denied" in result.err
        assert len(read_launches(tmp_path / "launches.parquet")) == 8


class TestKills:
    @pytest.mark.parametrize(("name", "kills"), [("parse", 1), pytest.param("profile", 1, marks=pytest.mark.nightly)])
    def test_at_random_moments_lose_nothing_and_the_same_command_completes(
        self, name: str, kills: int, tmp_path: Path
    ) -> None:
        (scenario,) = [one for one in SCENARIOS if one.name == name]
        account = kill(scenario, tmp_path, kills, random.Random(7), completions=1)  # noqa: S311
        assert account.kills == kills
        assert account.lost == []

    def test_of_a_profile_keep_its_results_beside_the_next_one(self, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        make_folder(folder)
        (folder / "reports" / "operators.jsonl").write_text("half")
        aside = make_folder(folder)
        assert aside is not None
        assert aside.parent == tmp_path
        assert (aside / "reports" / "operators.jsonl").read_text() == "half"
        assert list((folder / "reports").iterdir()) == []

    def test_of_a_profile_that_had_not_read_its_launches_keep_its_reports(self, tmp_path: Path) -> None:
        make_folder(tmp_path / "run")
        (tmp_path / "run" / "manifest.json").write_text("{}")
        aside = make_folder(tmp_path / "run")
        assert aside is not None
        assert (aside / "manifest.json").exists()

    def test_a_finished_run_is_never_moved_aside(self, tmp_path: Path) -> None:
        make_folder(tmp_path / "run")
        for part in ("manifest.json", "launches.parquet"):
            (tmp_path / "run" / part).write_text("{}")
        with pytest.raises(WrongUsage, match="already holds a run"):
            make_folder(tmp_path / "run")


class TestTwoProcesses:
    @pytest.mark.parametrize("words", [PROFILE, (*SWEEP, "--resume")], ids=lambda words: words[0])
    def test_cannot_write_one_run_folder_at_the_same_time(self, words: tuple[str, ...], tmp_path: Path) -> None:
        (tmp_path / "model.py").write_text(MODEL)
        with writing(tmp_path / "out"):
            result = called(tmp_path, *words)
            assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
        assert (result.code, "Another process is writing out." in result.err) == (2, True)

    def test_can_write_it_one_after_the_other(self, tmp_path: Path) -> None:
        for _ in range(2):
            with writing(tmp_path / "out"):
                assert (tmp_path / "out").is_dir()


class TestClocks:
    def test_that_jump_are_not_used_for_durations(self) -> None:
        time_of_day = re.compile(r"\btime\.time(_ns)?\b|\bdatetime\.utcnow\b")
        asked = [
            f"{path.name}: {line}"
            for path in MODULES.values()
            for line in path.read_text("utf-8").splitlines()
            if time_of_day.search(line)
            and path.name != "gpu_sampler.py"  # keeps the time of day that its readings began at, and no duration of it
        ]
        assert asked == []

    def test_that_jump_do_not_change_the_time_of_a_command(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "time", lambda: random.uniform(-1e9, 1e10))  # noqa: S311
        finished = subprocesses.run(
            [sys.executable, "-c", "import time; time.sleep(0.3)"], tmp_path / "log", timeout=20
        )
        assert 0.3 <= finished.seconds < 10
        assert not finished.timed_out


class TestATool:
    def test_that_ignores_termination_is_killed_with_its_daemon(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(subprocesses, "GRACE_S", 1.0)
        result = bench.profile("stubborn", "--timeout", "2")
        assert result.code == 1
        assert "--timeout" in result.err
        assert bench.still_running() == []
        assert bench.manifest()["partial"]
        assert len(bench.launches()) == 2

    @pytest.mark.parametrize("said", ["Local Endpoint is not available", "[boost::errinfo_api_function_*] = sem_open"])
    def test_of_nsys_that_fails_to_start_is_explained_with_advice(self, said: str, tmp_path: Path) -> None:
        (tmp_path / LOGS).mkdir()
        (tmp_path / LOGS / "output.txt").write_text(f"Warning: something else\n{said}\n", encoding="utf-8")
        error = explain(Manifest([], "nsys", "2026-11-22", tool_runs=[ToolRun(["nsys"], 1, 0.5)]), tmp_path)
        assert error is not None
        assert "nsys did not get to its own agent" in error.what
        assert said in error.cause
        assert "--tool-per node" in error.advice


def test_an_empty_file_never_replaces_launches(tmp_path: Path) -> None:
    kept = tmp_path / "launches.parquet"
    assert run(["parse", RAW, "-o", str(kept)]) == 0
    before = kept.read_bytes()
    (tmp_path / "big.csv").write_bytes(b"no report at all\n" * 100_000)
    assert run(["parse", str(tmp_path / "big.csv"), "-o", str(kept)]) == 1
    assert kept.read_bytes() == before


class TestALog:
    @pytest.mark.parametrize(
        "said", ["{", '{"ncu_bench_error": []}', '{"ncu_bench_error": {"what": 1}}', "\x1b[31m" * 9]
    )
    def test_in_which_a_program_prints_like_ncu_bench_is_still_read(self, said: str, tmp_path: Path) -> None:
        log = tmp_path / "log.txt"
        error = {"what": "It failed.", "cause": "", "advice": "", "exit_code": 2}
        log.write_text(f'{{"ncu_bench_error": {said}\n{said}\n{json.dumps({"ncu_bench_error": error})}\n')
        assert [(one.paragraph, one.exit_code) for one in errors_written(log)] == [("It failed.", 2)]

    def test_that_is_one_endless_line_is_read_in_pieces(self, tmp_path: Path) -> None:
        (tmp_path / "log.txt").write_bytes(b"x" * 1_000_000)
        assert max(map(len, lines_of(tmp_path / "log.txt"))) == subprocesses.LONGEST_LINE
