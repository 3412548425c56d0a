"""The account: what each case tried, on which commit of the code, on which day, and what it found."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from ncu_launch.files.toml_tables import tomllib

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("account.json")
READERS = (
    "launch", "parsers", "setup.py", *(f":(exclude)launch/ncu_launch/{one}" for one in ("bench", "profile", "targets")),
)  # fmt: skip
CODE = ("launch", "parsers", "setup.py", "ncu_tools")
"""What decides whether earlier inputs were tried on the code as it is: all of it, the readers, or what `code_of` finds."""


@dataclass
class Tried:
    """What a case tried on one commit of the code. `chunks` are the numbers of the pieces that ended.

    `read` is the number of inputs that were read and compared, None where every input is.
    """

    commit: str
    day: str = ""
    inputs: int = 0
    read: int | None = None
    findings: int = 0
    seconds: float = 0.0
    chunks: list[int] = field(default_factory=list)
    said: str = ""


@cache
def commit_of_code(code: tuple[str, ...] = CODE) -> str:
    """The last commit that changed the code, with "+" where files were changed since."""
    last = _git("log", "-1", "--format=%h", "--abbrev=8", "--", *code).strip()
    return last + ("+" if _git("status", "--porcelain", "--", *code).strip() else "")


@cache
def is_as_it_was(commit: str, code: tuple[str, ...]) -> bool:
    """Whether no file of the code changed since a commit, but in its comments, docstrings and layout."""
    if commit.endswith("+"):
        return False
    changed = _git("diff", "--name-only", "--no-renames", commit, "--", *code, missing="a commit that is gone")
    return all(_runs_the_same(commit, path) for path in changed.splitlines())


def _runs_the_same(commit: str, path: str) -> bool:
    """Whether a Python file has the statements that it had, and a TOML file the values."""
    meanings: dict[str, Callable[[str], object]] = {".py": _statements, ".pyi": _statements, ".toml": tomllib.loads}
    meaning = meanings.get(Path(path).suffix)
    then, now = _git("show", f"{commit}:{path}", missing=""), ROOT / path
    if meaning is None or not then or not now.is_file():
        return False
    return meaning(then) == meaning(now.read_text("utf-8"))


def _statements(text: str) -> str:
    """The syntax tree of a module as text, without strings that stand alone."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _git(*words: str, missing: str | None = None) -> str:
    """What git prints, or `missing` where it fails."""
    command = [shutil.which("git") or "git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=missing is None)
    return done.stdout if done.returncode == 0 else str(missing)


def load(file: Path = FILE) -> dict[str, Tried]:
    """What was tried last, by case."""
    if not file.is_file():
        return {}
    return {case: Tried(**said) for case, said in json.loads(file.read_text("utf-8")).items()}


def save(account: dict[str, Tried], file: Path = FILE) -> None:
    """Write the account to another name and rename it."""
    text = json.dumps({case: asdict(account[case]) for case in sorted(account)}, indent=1) + "\n"
    written = file.with_name(f".{file.name}.{os.getpid()}")
    written.write_text(text, "utf-8")
    written.replace(file)


def add(account: dict[str, Tried], case: str, chunk: int, found: Tried, code: tuple[str, ...]) -> None:
    """Add a chunk that ended; chunks of other code are forgotten."""
    known = account.get(case)
    if known is None or not is_as_it_was(known.commit, code):
        account[case] = known = Tried(found.commit, read=None if found.read is None else 0)
    known.day, known.said = found.day, found.said or known.said
    known.inputs += found.inputs
    known.findings += found.findings
    known.seconds = round(known.seconds + found.seconds, 1)
    if known.read is not None and found.read is not None:
        known.read += found.read
    known.chunks = sorted({*known.chunks, chunk})
