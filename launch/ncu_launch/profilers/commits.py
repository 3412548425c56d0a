"""Commits of the git repository that contains the current folder; none are known if git is not installed."""

from __future__ import annotations

import re
from collections.abc import Collection

from ncu_launch.profilers.installed_tools import ask

_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")
_LINE = re.compile(r"^([0-9a-f]{40,64}) (\d{4}-\S+)$", re.MULTILINE)


def commit_here() -> tuple[str, str]:
    """Hash and date (ISO 8601) of the checked-out commit; ("", "") outside of a repository."""
    return next(iter(_dated("HEAD").items()), ("", ""))


def dates_of(commits: Collection[str]) -> dict[str, str]:
    """Date (ISO 8601) by commit, for the full or abbreviated hashes in `commits` that this repository contains."""
    dated = {commit: _dated(commit) for commit in commits if _COMMIT.fullmatch(commit)}
    return {commit: date for commit, found in dated.items() for date in found.values()}


def _dated(revision: str) -> dict[str, str]:
    answer = ask(["git", "log", "-1", "--no-show-signature", "--format=%H %cI", revision, "--"])
    return dict(_LINE.findall(answer[1])) if answer is not None and answer[0] == 0 else {}
