"""A copy of the packages with a change in it, as a contributor makes it: which files it takes is what tests hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT

PACKAGES = ("launch/ncu_launch", "parsers/ncu_parsers", "ncu_tools")


@dataclass
class ChangedCopy:
    """The packages beside each other in `folder`, and the `changed` files as the repository names them."""

    folder: Path
    changed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for package in PACKAGES:
            to = self.folder / Path(package).name
            shutil.copytree(ROOT / package, to, ignore=shutil.ignore_patterns("__pycache__"))

    def add(self, file: str, text: str) -> None:
        """Write a new file, or text behind a file that is there."""
        with self._place(file).open("a", encoding="utf-8") as stream:
            stream.write(text)

    def insert(self, file: str, behind: str, text: str) -> None:
        """Put text behind a text that the file holds once."""
        path = self._place(file)
        before = path.read_text("utf-8")
        assert before.count(behind) == 1, (file, behind)
        path.write_text(before.replace(behind, behind + text), "utf-8")

    def _place(self, file: str) -> Path:
        self.changed.append(file)
        return self.folder / re.sub("^(launch|parsers)/", "", file)

    def printed(self, *words: str) -> str:
        """What a command of the copy prints."""
        # PYTHONPATH goes before the packages that are installed
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        command = [sys.executable, "-c", "from ncu_tools.cli import program; program()", *words]
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


def files_to_touch(what: str) -> str:
    """The cell of CONTRIBUTING.md's table that says where something is added."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    (cell,) = re.findall(rf"^\| {re.escape(what)} \| (.*) \|$", page, re.MULTILINE)
    return str(cell)


def assert_names_exactly(what: str, copy: ChangedCopy, instead: Collection[str] = ()) -> None:
    """CONTRIBUTING.md names the code that a change takes and no other: files, and the folder of a new one.

    `instead` are names of files that another change of this kind takes. Tests and docs are named besides.
    """
    named = re.findall(r"`([\w./]+(?:\.py|\.toml|/))`", files_to_touch(what))
    code = {one for one in named if not one.startswith(("tests/", "docs/", "benchmarks/"))}
    taken = {one for file in copy.changed for one in (file, Path(file).name, f"{Path(file).parent}/") if one in code}
    assert len(taken) == len(copy.changed), (copy.changed, code)
    assert code == taken | {*instead}
