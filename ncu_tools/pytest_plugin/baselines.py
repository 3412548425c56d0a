"""Baselines of tests: a JSON file per device in a folder beside the tests, replaced as a whole under a lock."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import lock_beside, write_whole

from ncu_tools.numbers.number_format import counted

FOLDER = "ncu_bench_baselines"
VERSION = 1


@dataclass(frozen=True)
class Baseline:
    """The result of one measurement of a test, per call.

    `how` is one of `measured.HOW`. `block_medians_ns` are the median times of consecutive blocks of calls, in ns, and
    `time_ns` is their mean. `counts` are exact. `threads` are PyTorch's CPU threads, None for a GPU.
    """

    how: str
    time_ns: float
    block_medians_ns: tuple[float, ...]
    counts: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None

    @property
    def by(self) -> str:
        """What measured it, and on a CPU with how many threads; only baselines for which both agree are compared."""
        return self.how + ("" if self.threads is None else f" with {counted(self.threads, 'thread', 'threads')}")


@dataclass(frozen=True)
class BaselineFile:
    """The file of one device's baselines: test -> baseline."""

    path: Path
    device: str

    @classmethod
    def beside(cls, test_file: Path, device: str) -> BaselineFile:
        """The file for the tests of a folder on this device."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-")[:80] or "device"
        return cls(test_file.parent / FOLDER / f"{name}.json", device)

    def read(self) -> dict[str, Baseline]:
        """The baselines, {} without a file. Raises `NcuBenchError` for a file that is damaged or newer."""
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from error
        try:
            known = json.loads(text)
            version = known["version"]
            if version != VERSION:
                raise NcuBenchError(
                    f"{self.path} is of version {version}, and this ncu-bench reads {VERSION}.",
                    "Another release of ncu-bench wrote it.", "Install that one, or write it anew: --ncu-bench-update",
                )  # fmt: skip
            return {name: _baseline(one) for name, one in known["tests"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(f"{type(error).__name__}: {error}") from error

    def write(self, measured: Mapping[str, Baseline]) -> None:
        """Add baselines to the file, or replace those of the same tests, under a lock. Raises `NcuBenchError`."""
        try:
            self.path.parent.mkdir(exist_ok=True)
            with lock_beside(self.path):
                every = {**self.read(), **measured}
                write_whole(self.path, _text(self.device, every).encode())
        except OSError as error:
            raise NcuBenchError(
                f"{self.path} could not be written: {error.strerror or error}.",
                advice="Check that the folder of the tests is yours to write.",
            ) from error

    def _damaged(self, why: str) -> NcuBenchError:
        return NcuBenchError(
            f"{self.path} cannot be read as baselines: {why}.", "It was cut off, or merged by hand.",
            f"Restore it (git checkout -- {self.path.name}), or remove it and write it anew: --ncu-bench-update",
        )  # fmt: skip


def _text(device: str, every: Mapping[str, Baseline]) -> str:
    """The text of the file: one line per test, sorted by name, so that a diff shows which tests changed."""
    lines = [f"  {_json(name)}: {_json(asdict(every[name]))}" for name in sorted(every)]
    head = f'{{\n "version": {VERSION},\n "device": {_json(device)},\n "tests": {{\n'
    return head + ",\n".join(lines) + "\n }\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _baseline(one: Mapping[str, Any]) -> Baseline:
    counts = {str(name): float(value) for name, value in one["counts"].items()}
    blocks = tuple(map(float, one["block_medians_ns"]))
    return Baseline(str(one["how"]), float(one["time_ns"]), blocks, counts, one["threads"])
