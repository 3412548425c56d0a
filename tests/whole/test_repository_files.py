"""Files at the root that other programs read: Dockerfile, workflow, pre-commit hook, issue forms, CITATION.cff."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ncu_launch.version import VERSION

from tests.conftest import ROOT, SAMPLES
from tests.nightly.parts import parts
from tests.support.called_here import called_here
from tests.support.kept_sass import BINARIES

pytestmark = pytest.mark.slow

FIRST, SECOND, *_ = re.findall(r"^```sh\n(.*?)\n```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "ENTRYPOINT"}
DOCKER = shutil.which("docker") if Path("/var/run/docker.sock").exists() else None


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def instructions() -> list[tuple[str, str]]:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    found = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in found]


class TestDockerfile:
    def test_has_a_stage_for_each_command_of_the_readme(self) -> None:
        stages: dict[str, list[str]] = {}
        stage = ""
        for name, rest in instructions():
            stage = rest.split(" AS ")[1] if name == "FROM" else stage
            stages.setdefault(stage, []).extend([rest] if name == "RUN" else [])
        assert stages == {"tests": [".ci/run"], "quickstart": [FIRST]}

    def test_keeps_the_rules_of_its_linter(self) -> None:
        names = [name for name, _ in instructions()]
        assert set(names) <= INSTRUCTIONS
        for name, rest in instructions():
            if name == "FROM":  # a tag, and not the newest of its day (DL3006, DL3007)
                assert re.fullmatch(r"[a-z]+:\d+\.\d+-[a-z]+ AS [a-z]+", rest)
            if name == "WORKDIR":  # absolute (DL3000)
                assert rest.startswith("/")
            if name == "ENTRYPOINT":  # as a list, so that signals arrive (DL3025)
                assert json.loads(rest) == ["ncu-bench"]
            assert "sudo" not in rest

    def test_copies_no_environment_of_this_machine(self) -> None:
        assert ".venv" in (ROOT / ".dockerignore").read_text("utf-8").split()


if DOCKER is not None:

    @pytest.mark.nightly
    def test_the_image_of_the_quick_start_is_built_and_reads_a_report() -> None:
        subprocess.run(
            [str(DOCKER), "build", "--target", "quickstart", "--tag", "ncu-bench-test", "."], cwd=ROOT, check=True
        )
        words = [str(DOCKER), "run", "--rm", "ncu-bench-test", "hotspots", "sample_reports/d01-wide-raw.csv"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert "sgemm_tiled" in done.stdout


class TestWorkflow:
    WORKFLOW = read(".github/workflows/ci.yml")

    def test_runs_what_ci_runs_by_day_and_each_part_by_night(self) -> None:
        jobs = self.WORKFLOW["jobs"]
        assert jobs["day"]["steps"][-1]["run"] == ".ci/run"
        assert jobs["night"]["steps"][-1]["run"] == ".ci/run nightly ${{ matrix.part }}"
        assert jobs["night"]["strategy"]["matrix"]["part"] == [*parts()]

    def test_may_only_read(self) -> None:
        assert self.WORKFLOW["permissions"] == {"contents": "read"}


class TestPreCommitHook:
    (HOOK,) = read(".pre-commit-hooks.yaml")

    def test_of_the_page_holds_the_code_of_two_builds(self, tmp_path: Path) -> None:
        page = (ROOT / "docs" / "gate.md").read_text("utf-8")
        (example,) = (yaml.safe_load(one) for one in re.findall(r"```yaml\n(repos:.*?)```", page, re.DOTALL))
        (used,) = example["repos"][0]["hooks"]
        assert used["id"] == self.HOOK["id"]
        base, new, *_ = used["args"]
        (tmp_path / new).parent.mkdir(parents=True)
        shutil.copy(BINARIES / "changed.sm_90.cubin", tmp_path / base)
        words = [*shlex.split(self.HOOK["entry"]), *used["args"]][1:]
        for build, code in (("changed", 0), ("kernels", 3)):
            shutil.copy(BINARIES / f"{build}.sm_90.cubin", tmp_path / new)
            assert called_here(*words, cwd=tmp_path).code == code

    def test_holds_two_reports_too(self) -> None:
        reports = [str(SAMPLES / name) for name in ("d02-long-rules.csv", "d10-details-all.csv")]
        words = [*shlex.split(self.HOOK["entry"]), *reports, "--fail-on", "any:time>5%"]
        assert called_here(*words[1:], cwd=ROOT).code == 0

    def test_is_installed_as_a_package_and_given_no_files(self) -> None:
        assert self.HOOK["language"] == "python"
        assert self.HOOK["pass_filenames"] is False


def test_every_workflow_on_the_page_of_gates_is_yaml_that_has_jobs_or_hooks() -> None:
    page = (ROOT / "docs" / "gate.md").read_text("utf-8")
    found = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert [next(iter(set(one) & {"jobs", "kernels", "repos"})) for one in found] == ["jobs", "kernels", "repos"]
    gitlab = found[1]["kernels"]
    assert gitlab["artifacts"]["reports"]["junit"] in gitlab["script"][-1]


def test_the_citation_names_the_version_and_the_licence() -> None:
    known = read("CITATION.cff")
    assert known["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= known.keys()
    assert (known["version"], known["license"]) == (VERSION, "MIT")


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("w*.yml")), ids=lambda path: path.stem
)
def test_an_issue_form_has_what_github_requires(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    assert len({one["id"] for one in form["body"]}) == len(form["body"])
    assert all(one["attributes"]["label"] for one in form["body"])
    assert any(one.get("validations", {}).get("required") for one in form["body"])


def test_security_is_reported_privately() -> None:
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text("utf-8")
