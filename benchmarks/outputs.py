"""Record the output of every command on many reports, and compare it with the output of another checkout.

    python benchmarks/outputs.py keep BEFORE sample_reports ../shared/reports     # in the old checkout
    python benchmarks/outputs.py keep AFTER sample_reports ../shared/reports      # in the new one
    python benchmarks/outputs.py compare BEFORE AFTER

In a checkout from before commands were merged, `keep --spelling old` uses the old command names. Answers are stored
under the new names, so that both checkouts can be compared.

A refactoring must not change output for programs: if the JSON or CSV of any command differs by a byte, `compare` shows
the first lines that differ and exits with 1. `--texts` also records texts, Markdown and errors, to read their diff.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import re
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
    "roofline", "roofline --levels all", "hotspots --by layer", "timeline --by kernel", "timeline --by rank",
)  # fmt: skip
OF_NCU = (
    "hotspots --mix", "hotspots --rules", "kernel", "kernel --explain few-blocks", "source", "kernel --part balance",
    "kernel --part samples", "roofline --instructions",
)  # fmt: skip
OF_TIMELINES = (
    "timeline", "timeline --part gaps", "timeline --part streams", "timeline --part samples",
    "timeline --part longest", "timeline --part waits", "timeline --trim 50ms,150ms", "timeline --step (?i)step|mm",
    "hotspots --by layer --depth 2", "compare --with formulas",
)  # fmt: skip
TIMELINES = (".sqlite", ".json", ".json.gz", ".nsys-rep", ".pb")
WRITTEN = ("csv", "sections", "perfetto", "speedscope")
"""Formats of `report --as`; the written file is compared, too."""
OF_NO_REPORT = (
    "machines --metrics flops,dram --chip gh100", "machines --metrics", "machines --all-chips", "machines",
    "machines h100-sxm", "estimate resnet18 --machine t4", "mcp --schema",
    "compare sample_reports/d01-wide-raw.csv --with formulas --target gemm:64,64,64,fp32",
)  # fmt: skip
OLD_WORDS = (
    (r"^hotspots --by layer", "layers"), (r"^timeline --by", "skew --by"),
    (r"^compare (\S+ )?--with formulas", r"expected \1"),
    (r"^kernel --part balance", "samples --balance"), (r"^(kernel|timeline) --part samples", "samples"),
    (r"^machines --metrics ?", "metrics "), (r"^machines --all-chips", "metrics --all-chips"),
    (r"^mcp --schema", "schema"), (r"^report --as", "export --as"), (r"^report$", "digest"),
)  # fmt: skip
"""Beginning of a command line -> its form before commands were merged, for `--spelling old`."""
OUTPUT = "OUTPUT"
"""Placeholder for the output file."""
FORMATS = ("json", "csv")
TEXTS = ("text", "markdown")
HINTS = (
    (r"ncu-bench metrics flops tensor", "ncu-bench machines --metrics flops,tensor"),
    (r"ncu-bench metrics\b", "ncu-bench machines --metrics"),
    (r"ncu-bench samples (\S+) --balance --kernel (\w+)", r"ncu-bench kernel \1 \2 --part balance"),
    (r"ncu-bench samples (\S+) --kernel (\w+)", r"ncu-bench kernel \1 \2 --part samples"),
    (r"ncu-bench skew compares", "ncu-bench timeline RANK0 RANK1 ... compares"),
    (r"ncu-bench samples TIMELINE --by name has means over many launches",
     "ncu-bench timeline RUN --part samples --by name has means over many"),
    (r"ncu-bench schema COMMAND", "ncu-bench mcp --schema NAME"),
    (r'"tokens": \d+', '"tokens": 0'),
)  # fmt: skip
"""Commands in hints of notes and statements before the merge -> now; estimated tokens follow their length."""
SHOWN_LINES = 12


def reports(folders: list[str]) -> list[Path]:
    """Every possible report in the folders, sorted."""
    found = (path for folder in folders for path in Path(folder).rglob("*") if path.is_file())
    return sorted(path for path in found if path.suffix not in (".py", ".md", ".lock"))


def questions(path: Path, texts: bool) -> Iterator[tuple[str, list[str]]]:
    """Command lines on one report: the words before its path, and the path with the options after it."""
    forms = (*FORMATS, *(TEXTS if texts else ()))
    others = OF_TIMELINES if path.name.endswith(TIMELINES) else OF_NCU
    for words in (*OF_ANY, *others):
        for form in forms:
            yield words, [str(path), "--format", form]
    for written in WRITTEN:
        yield f"report --as {written}", [str(path), "-o", OUTPUT, "--format", "json"]
    yield "compare", [str(path), str(path), "--format", "json"]
    yield "report", [str(path), "--format", "json"]


def spelt(words: str, spelling: str) -> list[str]:
    """Split a command line into words, in the new or old spelling."""
    for now, before in OLD_WORDS if spelling == "old" else ():
        words = re.sub(now, before, words)
    return words.split()


def answer(words: list[str]) -> str:
    """Output and exit code of a command line; errors count as equal whatever their text."""
    from ncu_tools.cli import run

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(words)
        except Exception as error:  # a traceback is an answer too: the two sides must agree on it
            return f"traceback: {error!r}\n"
    return f"exit code {code}\n{out.getvalue() if code in (0, 3) else ''}"


def answers(task: tuple[Path | None, bool, str]) -> dict[str, str]:
    """All answers on one report, or without a report, by command line in new spelling."""
    path, texts, spelling = task
    asked = [(words, ["--format", form]) for words in OF_NO_REPORT for form in FORMATS]
    found = {}
    with TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        written = Path(folder) / "written"
        for words, options in asked if path is None else questions(path, texts):
            written.unlink(missing_ok=True)
            line = [*spelt(words, spelling), *(str(written) if one == OUTPUT else one for one in options)]
            found[" ".join([words, *options])] = answer(line).replace(folder, "") + _content(written)
    return found


def _content(file: Path) -> str:
    return file.read_text("utf-8") if file.is_file() else ""


def keep(into: Path, folders: list[str], texts: bool, spelling: str) -> None:
    """Write a file of answers for each report, each in its own process."""
    into.mkdir(parents=True, exist_ok=True)
    tasks = [(path, texts, spelling) for path in (None, *reports(folders))]
    with get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=8) as pool:
        for (path, *_), found in zip(tasks, pool.imap(answers, tasks), strict=True):
            name = str(path).replace("../", "").replace("/", "__")
            (into / f"{name}.json").write_text(json.dumps(found, indent=0, ensure_ascii=False), "utf-8")
            print(f"{len(found):4} {path}", file=sys.stderr)


def in_new_words(text: str) -> str:
    """An answer with today's command names in its hints."""
    for now, before in HINTS:
        text = re.sub(now, before, text)
    return text


def compare(before: Path, after: Path) -> int:
    """Print the answers that differ; returns their number."""
    different = total = 0
    for old in sorted(before.glob("*.json")):
        new = after / old.name
        was = json.loads(old.read_text("utf-8"))
        now = json.loads(new.read_text("utf-8")) if new.is_file() else {}
        for question, text in was.items():
            total += 1
            text, found = in_new_words(text), in_new_words(now.get(question, ""))
            if found != text:
                different += 1
                lines = difflib.unified_diff(text.splitlines(), found.splitlines(), lineterm="", n=0)
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
    asked.add_argument("--spelling", choices=("new", "old"), default="new", help="ask by commands of before the fold")
    found = asked.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "launch"), str(ROOT / "parsers")]
    if found.what == "keep":
        keep(found.folder, found.others, found.texts, found.spelling)
    else:
        sys.exit(1 if compare(found.folder, Path(found.others[0])) else 0)


if __name__ == "__main__":
    main()
