"""What is checked out here, and when commits were made, by git."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from ncu_launch.profilers.commits import commit_here, dates_of

GIT = shutil.which("git")


@pytest.mark.skipif(GIT is None, reason="git is not installed")
def test_a_commit_has_its_date_and_is_known_by_a_part_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_here() == ("", "")
    for variable in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{variable}_NAME", "A")
        monkeypatch.setenv(f"GIT_{variable}_EMAIL", "a@example.org")
        monkeypatch.setenv(f"GIT_{variable}_DATE", "2026-03-01T10:00:00+01:00")
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run([str(GIT), *words], check=True)
    commit, date = commit_here()
    assert (len(commit), date) == (40, "2026-03-01T10:00:00+01:00")
    assert dates_of([commit[:8], "f" * 40, "--all", "HEAD"]) == {commit[:8]: date}


def test_without_git_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert (commit_here(), dates_of(["abcd"])) == (("", ""), {})
