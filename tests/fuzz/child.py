"""The process that fuzzes one target: libFuzzer changes inputs to reach new lines of the parsers, through atheris.

    python -m tests.fuzz.child TARGET FINDINGS FOLDER SECONDS -runs=N ...   (what follows is libFuzzer's)

An error that is none of the project's is kept once per place, with its shortest input, and the next input is tried. A
crash of the interpreter, an input without end and one that takes too much memory end the process, by libFuzzer.
"""

from __future__ import annotations

import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

import atheris
import pyarrow as pa

from tests.fuzz import campaign
from tests.nightly import parts
from tests.nightly.tried_code import loaded_with

READ_BY = {name: modules for part in parts.TARGETS.values() for name, modules in part.items()}
READ_BY[campaign.TOGETHER] = tuple(module for modules in READ_BY.values() for module in modules)
with atheris.instrument_imports(include=["ncu_launch", "ncu_parsers", "ncu_tools"]):
    for module in sorted(loaded_with(*READ_BY[sys.argv[1]])):
        import_module(module)

# The rest is loaded as it is: instrumenting it would take five seconds.
from tests.fuzz.targets import TARGETS, TOGETHER, Target, try_input  # noqa: E402


class TooSlow(Exception):
    """One input took more seconds than any may."""


class Findings:
    """What was found, in a folder: NAME holds the input, NAME.txt the error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shortest: dict[str, int] = {}

    def keep(self, error: Exception, data: bytes) -> None:
        """Keep the input that raised an error, if it is the shortest that did so in this place."""
        name = _named(error)
        if len(data) >= self._shortest.get(name, sys.maxsize):
            return
        self._shortest[name] = len(data)
        (self._folder / name).write_bytes(data)
        (self._folder / f"{name}.txt").write_text("".join(traceback.format_exception(error)), encoding="utf-8")


def _named(error: Exception) -> str:
    """An error by its type and where it came from: the innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if any(part in frame.filename for part in ("ncu_", "tests/fuzz"))]
    place = ours[-1] if ours else frames[-1]
    return f"{type(error).__name__}-{Path(place.filename).stem}-{place.name.strip('<>')}-{place.lineno}"


def main() -> None:
    """Fuzz until libFuzzer has had enough."""
    name, folder, corpus, seconds, *options = sys.argv[1:]
    target = TOGETHER if name == campaign.TOGETHER else TARGETS[name]
    findings = Findings(Path(folder))
    pa.set_cpu_count(1)

    def try_one(data: bytes) -> None:
        begun = time.process_time()  # on a busy machine an input may wait; for one without end libFuzzer has a clock
        try:
            try_input(target, data)
            if time.process_time() - begun > float(seconds):
                raise TooSlow(f"{time.process_time() - begun:.1f} s")
        except Exception as error:
            findings.keep(error, data)

    atheris.Setup([sys.argv[0], *_beginning(target, Path(corpus)), *options], try_one)
    atheris.Fuzz()


def _beginning(target: Target, folder: Path) -> list[str]:
    """Where inputs begin, as libFuzzer's options: seeds in a folder, words of the format in a file, the longest."""
    inputs, words = folder / "inputs", folder / "words"
    inputs.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (inputs / f"seed-{number}").write_bytes(seed)
    options = [str(inputs), f"-max_len={target.longest}"]
    if not target.words:
        return options
    quoted = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in target.words)
    words.write_text("".join(f'"{word}"\n' for word in quoted), encoding="ascii")
    return [*options, f"-dict={words}"]


if __name__ == "__main__":
    main()
