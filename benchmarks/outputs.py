"""Keep what every command prints over many reports, and compare it with what another checkout printed.

    python benchmarks/outputs.py keep BEFORE sample_reports ../shared/reports     # in the old checkout
    python benchmarks/outputs.py keep AFTER sample_reports ../shared/reports      # in the new one
    python benchmarks/outputs.py compare BEFORE AFTER

A refactoring changes nothing that programs read: `compare` ends with 1 and shows the first lines that differ where JSON
or CSV of any command differs by a byte. Texts, Markdown and errors are kept with `--texts`, for reading the diff.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
OF_ANY = (
    "hotspots", "hotspots --by grid", "hotspots --by category", "hotspots --by operator", "hotspots --by short",
    "hotspots --diagnose", "hotspots --units", "hotspots --sort headroom", "hotspots --columns memory",
    "roofline", "roofline --levels all", "layers",
)  # fmt: skip
OF_NCU = (
    "hotspots --mix", "hotspots --rules", "kernel", "kernel --explain few-blocks", "source", "samples --balance",
    "roofline --instructions",
)  # fmt: skip
OF_TIMELINES = ("timeline", "timeline --part gaps", "timeline --part streams", "samples", "layers --depth 2")
TIMELINES = (".sqlite", ".json", ".json.gz", ".nsys-rep", ".pb")
OF_NO_REPORT = (
    "metrics flops,dram --chip gh100", "metrics", "machines", "machines h100-sxm", "estimate resnet18 --machine t4",
)  # fmt: skip
FORMATS = ("json", "csv")
TEXTS = ("text", "markdown")
SHOWN_LINES = 12


def reports(folders: list[str]) -> list[Path]:
    """Every file of the folders that may be a report, in a steady order."""
    found = (path for folder in folders for path in Path(folder).rglob("*") if path.is_file())
    return sorted(path for path in found if path.suffix not in (".py", ".md", ".lock"))


def questions(path: Path, texts: bool) -> Iterator[list[str]]:
    """The command lines that are asked of one report."""
    others = OF_TIMELINES if path.name.endswith(TIMELINES) else OF_NCU
    for words in (*OF_ANY, *others):
        for form in (*FORMATS, *(TEXTS if texts else ())):
            command, *options = words.split()
            yield [command, str(path), *options, "--format", form]
    yield ["compare", str(path), str(path), "--format", "json"]
    yield ["digest", str(path), "--format", "json"]


def answer(words: list[str]) -> str:
    """What a command line prints and its exit code; an error's text is not compared, that it is one is."""
    from ncu_tools.cli import run

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(words)
        except Exception as error:  # a traceback is an answer too: the two sides must agree on it
            return f"traceback: {error!r}\n"
    return f"exit code {code}\n{out.getvalue() if code in (0, 3) else ''}"


def answers(task: tuple[Path | None, bool]) -> dict[str, str]:
    """All answers on one report, or on none, by command line."""
    path, texts = task
    asked = [[*words.split(), "--format", form] for words in OF_NO_REPORT for form in FORMATS]
    with TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        return {" ".join(words): answer(words) for words in (asked if path is None else questions(path, texts))}


def keep(into: Path, folders: list[str], texts: bool) -> None:
    """Write a file of answers for each report, in a process of its own each."""
    into.mkdir(parents=True, exist_ok=True)
    tasks = [(path, texts) for path in (None, *reports(folders))]
    with get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=8) as pool:
        for (path, _), found in zip(tasks, pool.imap(answers, tasks), strict=True):
            name = str(path).replace("../", "").replace("/", "__")
            (into / f"{name}.json").write_text(json.dumps(found, indent=0, ensure_ascii=False), "utf-8")
            print(f"{len(found):4} {path}", file=sys.stderr)


def compare(before: Path, after: Path) -> int:
    """Print the answers that differ; how many do."""
    different = total = 0
    for old in sorted(before.glob("*.json")):
        new = after / old.name
        was = json.loads(old.read_text("utf-8"))
        now = json.loads(new.read_text("utf-8")) if new.is_file() else {}
        for question, text in was.items():
            total += 1
            if now.get(question) != text:
                different += 1
                lines = difflib.unified_diff(text.splitlines(), now.get(question, "").splitlines(), lineterm="", n=0)
                print(f"\nncu-bench {question}", *list(lines)[2 : 2 + SHOWN_LINES], sep="\n  ")
    print(f"\n{different} of {total} answers differ")
    return different


def main() -> None:
    """Read the command line."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=("keep", "compare"))
    asked.add_argument("folder", type=Path)
    asked.add_argument("others", nargs="+")
    asked.add_argument("--texts", action="store_true", help="keep texts and Markdown as well")
    found = asked.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "launch"), str(ROOT / "parsers")]
    if found.what == "keep":
        keep(found.folder, found.others, found.texts)
    else:
        sys.exit(1 if compare(found.folder, Path(found.others[0])) else 0)


if __name__ == "__main__":
    main()
