"""The steps of action.yml, run in a shell with stand-ins for GitHub's files and its API."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, SAMPLES
from tests.support.stand_in_github import TOKEN, StandIn, github

pytestmark = pytest.mark.slow

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
BASH, GIT = (shutil.which(name) or name for name in ("bash", "git"))
OLD = str(SAMPLES / "d02-long-rules.csv")


class Job:
    """A job with the files that GitHub gives to steps. `inputs` are those of the action beside its defaults."""

    def __init__(self, folder: Path, api: StandIn, **inputs: str) -> None:
        self.folder, self.checkout = folder, folder / "checkout"
        self.checkout.mkdir(exist_ok=True)
        self.output, self.summary, event = (folder / name for name in ("output", "summary.md", "event.json"))
        event.write_text('{"pull_request": {"number": 7}}', "utf-8")
        for file in (self.output, self.summary):
            file.touch()
        known = {f"inputs.{name}": one["default"] for name, one in ACTION["inputs"].items()}
        self.known = known | {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        self.known |= {"github.token": TOKEN, "runner.temp": str(folder), "github.action_path": str(ROOT)}
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder),
            "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(self.output), "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_EVENT_PATH": str(event), "GITHUB_WORKSPACE": str(self.checkout), "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": "42", "GITHUB_SHA": "abc", "GITHUB_API_URL": api.address, "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    def step(self, name: str) -> subprocess.CompletedProcess[str]:
        """A step by its name, as the runner starts it."""
        (step,) = (one for one in STEPS if one["name"] == name)
        own = {key: self._filled_in(value) for key, value in step.get("env", {}).items()}
        return subprocess.run(
            [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=self.checkout,
            env=self.environment | own, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def _filled_in(self, value: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: self._value(found[1]), value)

    def _value(self, expression: str) -> str:
        written = dict(line.split("=", 1) for line in self.output.read_text("utf-8").splitlines())
        known = self.known | {f"steps.gate.outputs.{name}": value for name, value in written.items()}
        return next((known[one] for one in expression.split(" || ") if known.get(one)), "")


@pytest.fixture
def api() -> Iterator[StandIn]:
    with github() as stand_in:
        yield stand_in


def slower(path: Path) -> str:
    text = (SAMPLES / "d10-details-all.csv").read_text("utf-8")
    path.write_text(text.replace('"693.87"', '"1387.74"'), "utf-8")
    return str(path)


def test_a_tripped_gate_is_in_the_summary_a_comment_an_annotation_and_the_artefact(
    tmp_path: Path, api: StandIn
) -> None:
    job = Job(tmp_path, api, base=OLD, new=slower(tmp_path / "new.csv"), fail_on="any:time>5%\n\n  launches>0%\n")
    gate = job.step("Gate")
    assert gate.returncode == 0, gate.stderr
    assert job.output.read_text("utf-8") == "exit-code=3\n"
    summary = job.summary.read_text("utf-8")
    assert summary.startswith("### ncu-bench: 1 of 2 tripped")
    (comment,) = api.comments
    assert comment["body"].split("\n", 1) == ["<!-- ncu-bench: ncu-bench -->", summary.rstrip("\n")]
    assert "::error title=ncu-bench%3A any%3Atime>5%25::tripped: sgemm_tiled" in gate.stderr
    assert {file.name for file in (tmp_path / "ncu-bench" / "ncu-bench").iterdir()} == {
        "gates.md",
        "gates.xml",
        "page.html",
    }
    assert job.step("Outcome").returncode == 3
    assert TOKEN not in gate.stdout + gate.stderr + summary


@pytest.mark.nightly
def test_missing_rights_are_a_warning_and_a_run_that_cannot_be_read_is_said(tmp_path: Path, api: StandIn) -> None:
    api.refuses = 403
    held = Job(tmp_path, api, base=OLD, new=str(SAMPLES / "d10-details-all.csv"))
    told = held.step("Gate").stderr
    assert "::warning title=ncu-bench::The pull request was not commented on: GitHub answered 403" in told
    assert "pull-requests: write" in told
    assert held.output.read_text("utf-8") == "exit-code=0\n"
    lost = Job(tmp_path, api, base=OLD, new="nowhere.ncu-rep")
    lost.output.write_text("", "utf-8")
    assert "Error: nowhere.ncu-rep" in lost.step("Gate").stderr
    assert lost.output.read_text("utf-8") == "exit-code=1\n"
    assert "No gate was judged (exit code 1)" in lost.summary.read_text("utf-8")


def test_the_command_measures_the_base_in_a_work_tree_and_then_the_change(tmp_path: Path, api: StandIn) -> None:
    job = Job(tmp_path, api, command='cp report.csv "$RUN"')

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.run([GIT, *who, *words], cwd=job.checkout, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    for text in ("before", "after"):
        (job.checkout / "report.csv").write_text(text, "utf-8")
        git("add", "report.csv")
        git("commit", "--quiet", "--message", text)
    job.known["github.event.pull_request.base.sha"] = git("rev-parse", "HEAD~1").strip()
    for _ in range(2):  # as of two gates of one job
        done = job.step("Measure")
        assert done.returncode == 0, done.stderr
    found = {name: (tmp_path / "ncu-bench" / "ncu-bench" / name).read_text("utf-8") for name in ("base", "new")}
    assert found == {"base": "before", "new": "after"}


@pytest.mark.parametrize("is_managed", [False, True])
def test_ncu_bench_is_installed_into_the_python_of_the_job_or_beside_it(
    is_managed: bool, tmp_path: Path, api: StandIn
) -> None:
    job = Job(tmp_path, api)
    tools, paths = tmp_path / "tools", tmp_path / "paths"
    tools.mkdir()
    python = f"""#!{BASH}
echo "$0 $*" >> {tmp_path}/calls
if [ "$2" = pip ] && [ "$0" = {tools}/python3 ]; then exit {int(is_managed)}; fi
if [ "$2" = venv ]; then mkdir -p "$4/bin"; cp "$0" "$4/bin/python"; fi
"""
    (tools / "python3").write_text(python, "utf-8")
    (tools / "python3").chmod(0o755)
    job.environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_PATH": str(paths)}
    assert job.step("Install").returncode == 0
    own, *venv = (tmp_path / "calls").read_text("utf-8").splitlines()
    assert own == f"{tools}/python3 -m pip install --quiet {ROOT}"
    assert len(venv) == 2 * is_managed
    assert paths.exists() == is_managed


def test_no_expression_of_a_user_is_pasted_into_a_script() -> None:
    assert [step["name"] for step in STEPS if "${{" in step.get("run", "")] == []


def test_each_input_is_used_and_each_has_a_default() -> None:
    text = json.dumps(STEPS)
    assert [name for name in ACTION["inputs"] if f"inputs.{name}" not in text] == []
    assert all("default" in one for one in ACTION["inputs"].values())


def test_the_inputs_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "gate.md").read_text("utf-8").partition("## GitHub Actions")[2]
    told = re.findall(
        r"`([a-z-]+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    )
    assert told == [*ACTION["inputs"]]


def first_example(page: str) -> Mapping[str, Any]:
    (first, *_) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    found: Mapping[str, Any] = yaml.safe_load(first)
    return found


def test_the_page_begins_with_a_workflow_that_the_action_takes() -> None:
    page = (ROOT / "docs" / "gate.md").read_text("utf-8")
    workflow = first_example(page)
    *_, last = workflow["jobs"]["kernels"]["steps"]
    assert set(last["with"]) <= set(ACTION["inputs"])
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert page.index("```yaml") < 100
