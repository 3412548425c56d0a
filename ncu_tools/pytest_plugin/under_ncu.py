"""Measure a call under ncu: pytest runs the same test once more in a process that ncu profiles.

A call may be any closure, which no other process can import, so the test creates it again. In that process, calls
measured earlier return their known results, the wanted call runs in a range that ncu profiles, and the session ends.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.nvtx_ranges import DOMAIN
from ncu_launch.profile.plan import Request
from ncu_launch.workload.user_ranges import range as marked
from ncu_parsers.schema import tables

from ncu_tools.history.quantities import LAUNCHES, quantities
from ncu_tools.history.run_summary import HistorySums
from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.pipeline import run_profile
from ncu_tools.profiling.profile_request import ProfileRequest
from ncu_tools.pytest_plugin.measured import BY_NCU, Call, KernelProfile

CALLS = 4
"""How often the call runs in the range that ncu profiles, after one warm-up call."""
RANGE = "pytest_kernels"
CHILD = "NCU_BENCH_PYTEST"
"""Environment variable of the process under ncu: JSON with the results of the calls before the wanted one."""


@dataclass(frozen=True)
class Rerun:
    """A test to run again under ncu: its command line, and the folder where it starts."""

    words: tuple[str, ...]
    folder: Path

    @classmethod
    def of(cls, item: pytest.Item) -> Rerun:
        """The command line for one test, with this session's configuration and plugins, in a single process."""
        config = item.config
        words = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--rootdir", str(config.rootpath)]
        words += ["-c", str(config.inipath)] if config.inipath is not None else []
        given = [str(word) for word in config.invocation_params.args]
        words += [one for at, one in enumerate(given) if re.match("-p(?!-)", one) or given[at - 1 : at] == ["-p"]]
        words += ["-n", "0"] if config.pluginmanager.hasplugin("xdist") else []
        _, _, of_file = item.nodeid.partition("::")
        return cls((*words, f"{item.path}::{of_file}"), config.invocation_params.dir)

    def profiled(
        self, before: Sequence[KernelProfile], metrics: Sequence[str], device: str, folder: Path
    ) -> KernelProfile:
        """The call after `before`, measured under ncu into a run folder.

        Raises `NcuBenchError` if nothing was counted.
        """
        if find_spec("nvtx") is None:
            raise NcuBenchError(
                "A call under ncu is marked by an NVTX range, and the package nvtx is not installed.",
                advice="Type: pip install nvtx. Or time it by CUDA events: --ncu-bench-without-ncu",
            )
        kept = [{name: value for name, value in asdict(one).items() if name != "folder"} for one in before]
        request = Request(
            ("pytest", *self.words), tuple(metrics), None, self.words, tool="ncu", nvtx_include=(f"{DOMAIN}@{RANGE}",)
        )
        with _environment(json.dumps(kept)):
            collected = run_profile(ProfileRequest(request, folder), Listener())
        assert collected is not None  # noqa: S101  only ranks of a launcher end without a run
        if collected.failure is not None:
            raise collected.failure
        if collected.table is None:
            raise NcuBenchError("The call launched no kernel that ncu counted.", collected.idle)
        return profile_of(collected.table, device, collected.folder)


@contextmanager
def _environment(before: str) -> Iterator[None]:
    """Within the block, child processes get `before`, and do not count as workers of pytest-xdist."""
    with pytest.MonkeyPatch.context() as environment:
        for name in [one for one in os.environ if one.startswith(("PYTEST_XDIST_", "PYTEST_CURRENT"))]:
            environment.delenv(name)
        environment.setenv(CHILD, before)
        yield


def profile_of(launches: pa.Table, device: str, folder: Path) -> KernelProfile:
    """The launches of `CALLS` equal calls as one call; `device` is the GPU's name if the report has none.

    Raises `NcuBenchError` if the calls launched different kernels.
    """
    names = tables.words(launches, "kernel_name")
    each, rest = divmod(len(names), CALLS)
    if rest or names != names[:each] * CALLS:
        raise NcuBenchError(
            f"{CALLS} calls launched {len(names)} kernels, and not the same ones each time.",
            "A cache was filled, a shape was tuned, or a collective ran.",
            "Call it once before it is measured, or measure one kernel of it.",
        )
    device = next(filter(None, tables.words(launches, "device_name")), device)
    times = tables.floats(launches, "duration_ns").reshape(CALLS, each).sum(axis=1)
    return KernelProfile(BY_NCU, device, tuple(times.tolist()), counts_of(launches), folder=folder)


def counts_of(launches: pa.Table) -> dict[str, float]:
    """The exact counts of one of `CALLS` equal calls; registers and shared memory are the largest of any launch."""
    sums = HistorySums()
    sums.add(launches)
    table = sums.table()
    found = {LAUNCHES: float(tables.floats(table, LAUNCHES).sum()) / CALLS}
    for name, quantity in quantities().items():
        values = tables.floats(table, name) if quantity.exact and name in table.column_names else np.empty(0)
        if name == LAUNCHES or not len(values) or np.isnan(values).any():
            continue
        found[name] = float(values.max() if quantity.is_of_a_launch else values.sum() / CALLS)
    return found


def results_before(text: str) -> list[KernelProfile]:
    """The results of the calls before the wanted one, in the process under ncu."""
    known: list[Mapping[str, object]] = json.loads(text)
    return [KernelProfile(**{**one, "samples_ns": tuple(one["samples_ns"])}) for one in known]  # type: ignore[arg-type]


def run_and_end(call: Call) -> NoReturn:
    """Run the wanted call in the profiled range, and end the session, so that nothing else is counted."""
    call()
    _wait()
    with marked(RANGE):
        for _ in range(CALLS):
            call()
        _wait()
    pytest.exit("measured under ncu", returncode=0)


def _wait() -> None:
    """Synchronise with the GPU if PyTorch has used it; calls of other libraries must wait themselves."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
