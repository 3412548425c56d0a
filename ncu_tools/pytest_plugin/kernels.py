"""The fixture `kernels`: measure the calls of a test, and compare them with its baselines."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import NoReturn

import pytest
from ncu_launch.bench.against.paired_rounds import in_turns, times_ratio
from ncu_launch.bench.gpu.device_locks import visible_gpus
from ncu_launch.bench.point_process import cpu_timer, gpu_timer
from ncu_launch.bench.timed_iteration import Iteration
from ncu_launch.counters.metric_groups import refuse_unknown
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.profilers.installed_tools import find_tool, gpus

from ncu_tools.bench.compare_points import estimates_of
from ncu_tools.compare.gate import TRIPPED, GateOutcome, evaluate, parse_gate
from ncu_tools.numbers.change import SAME_COUNT, Change, Subject, Subjects
from ncu_tools.numbers.number_format import duration, percent
from ncu_tools.numbers.statistics import ratio_interval
from ncu_tools.pytest_plugin.baselines import Baseline, BaselineFile
from ncu_tools.pytest_plugin.measured import BY_CLOCK, BY_EVENTS, EFFORT, KernelProfile, in_words, measured_here
from ncu_tools.pytest_plugin.options import CPU, UPDATE, WITHOUT_NCU
from ncu_tools.pytest_plugin.summary import BY, CALLS, CHANGE, COUNTS, MINIMUM, NOISE, TIME
from ncu_tools.pytest_plugin.under_ncu import CHILD, Rerun, results_before, run_and_end

METRICS = ("flops", "dram", "l1", "spills", "smsp__inst_executed.sum")
"""Metrics that ncu collects unless a test names others: those of every count that a baseline keeps exactly."""
TRIES = 3
"""How often a time is measured before the test fails: on a busy machine a slower time may be no regression."""
IF_MEANT = "If that is meant"
NO_GPU = (
    "no NVIDIA GPU here. On the CPU, --ncu-bench-cpu times the call, and counts PyTorch's operators by their formulas"
)


@contextmanager
def _told() -> Iterator[None]:
    """Within the block, an `NcuBenchError` fails the test with its message, without traceback."""
    __tracebackhide__ = True
    try:
        yield
    except NcuBenchError as error:
        pytest.fail(error.paragraph, pytrace=False)


@dataclass
class Kernels:
    """Measures calls of one test. `why` says why ncu does not measure, "" if it does; its runs are kept in `folders`.

    `device` is where PyTorch runs, cuda or cpu; `device_name` is the GPU's name by its driver, "" for a CPU. `before`
    are the results of this test so far. `given` are the results of earlier calls in the process under ncu, None in
    others.
    """

    item: pytest.Item
    folders: pytest.TempPathFactory
    device: str
    device_name: str
    why: str
    updating: bool
    given: list[KernelProfile] | None = None
    before: list[KernelProfile] = field(default_factory=list)

    @_told()
    def profile(
        self, call: Callable[..., object], /, *arguments: object, metrics: Sequence[str] = METRICS
    ) -> KernelProfile:
        """Measure `call(*arguments)`, which is called many times and must do the same each time.

        `metrics` are what ncu counts, as `ncu-bench profile --metrics` names them; without ncu they have no effect.
        """
        work, metrics = partial(call, *arguments), _names(metrics)
        refuse_unknown(metrics)
        if self.given is not None and len(self.before) >= len(self.given):
            run_and_end(work)
        if self.given is not None:
            found = self.given[len(self.before)]
        elif not self.why:
            folder = self.folders.mktemp("ncu-bench") / "run"
            found = Rerun.of(self.item).profiled(self.before, metrics, self.device_name, folder)
        else:
            found = measured_here(work, self.device)
        self.before.append(found)
        self._say(BY, f"by {found.how} on {found.device}" + (f" ({self.why})" if self.why else ""))
        noise, counts = found.noise, ", ".join(in_words(name, value) for name, value in found.counts.items())
        self._say(TIME, duration(found.time_ns))
        self._say(NOISE, "" if noise is None else percent(noise))
        self._say(MINIMUM, duration(min(found.samples_ns)))
        self._say(CALLS, f"{len(found.samples_ns):,}")
        self._say(COUNTS, counts)
        return found

    @_told()
    def assert_no_slower(
        self, call: Callable[..., object] | KernelProfile, /, *arguments: object, within: float = 0.05,
        than: Callable[..., object] | None = None,
    ) -> None:  # fmt: skip
        """Fail if a call takes longer than its baseline by more than `within`, as a fraction, and beyond its noise.

        With `than`, another call with the same arguments is the baseline: both are timed in turns.
        """
        __tracebackhide__ = True
        _require_fraction(within)
        if than is not None:
            self._assert_no_slower_than(call, arguments, within, than)
            return
        found = self._measured(call, arguments)
        base = self._baseline(found)
        if base is None:
            return
        outcome = _held(base, found.baseline, within)
        tries = 1
        while outcome.outcome == TRIPPED and tries < TRIES and self.why and callable(call):
            outcome = _held(base, measured_here(partial(call, *arguments), self.device).baseline, within)
            tries += 1
        self._say(CHANGE, _change(outcome))
        if outcome.outcome == TRIPPED:
            times = f", measured {tries} times" if tries > 1 else ""
            self._fail(f"slower than its baseline by more than {100 * within:g} %{times}: {outcome.reason}", found)

    @_told()
    def assert_counters(
        self, call: Callable[..., object] | KernelProfile, /, *arguments: object, only: Sequence[str] = (),
        **expected: float,
    ) -> None:  # fmt: skip
        """Fail if a count of a call differs from its baseline, or from an `expected` value: `flops=2 * 64**3`.

        Counts are exact: under ncu launches, instructions, flops, l1_bytes, registers, spills, local_accesses and
        shared_bytes; without it operators, flops and bytes by formulas. `only` names some of them.
        """
        __tracebackhide__ = True
        found, only = self._measured(call, arguments), _names(only)
        if expected:
            self._assert_equal(expected, found, "expected")
            if not only:
                return
        base = self._baseline(found)
        if base is not None:
            self._assert_equal({name: _of_baseline(base, name) for name in only or base.counts}, found, "baseline")

    # ----------------------------------------------------------------------------------------------------- baselines

    def _measured(self, call: Callable[..., object] | KernelProfile, arguments: Sequence[object]) -> KernelProfile:
        if isinstance(call, KernelProfile):
            return call
        return self.profile(call, *arguments)

    def _baseline(self, found: KernelProfile) -> Baseline | None:
        """The baseline of a measurement; None if the measurement has just been written as one, or under ncu.

        Fails the test if there is none, or if another tool measured it.
        """
        __tracebackhide__ = True
        if self.given is not None:
            return None
        file, name = BaselineFile.beside(self.item.path, found.device), self._name(found)
        if self.updating:
            file.write({name: found.baseline})
            return None
        base = file.read().get(name)
        if base is None:
            self._fail(f"no baseline in {file.path}", found, update="Write one, and commit it with the test")
        now, then = found.baseline.by, base.by
        if now != then:
            self._fail(f"measured by {now}, and its baseline by {then}: they cannot be compared", found)
        return base

    def _name(self, found: KernelProfile) -> str:
        """The test's file and name, followed by the number of the measurement from the second on, as "#2"."""
        number = next((at for at, one in enumerate(self.before, 1) if one is found), None)
        if number is None:
            raise WrongUsage(
                "This profile was measured by another test.", advice="Give the function, or profile it here."
            )
        _, _, of_file = self.item.nodeid.partition("::")
        return f"{self.item.path.name}::{of_file}" + (f"#{number}" if number > 1 else "")

    def _assert_equal(self, wanted: Mapping[str, float | None], found: KernelProfile, whose: str) -> None:
        __tracebackhide__ = True
        wrong = []
        for name, value in wanted.items():
            now = found.counts.get(name)
            if now is None:
                there = ", ".join(found.counts) or "nothing"
                wrong.append(f"{name} was not counted: {found.unknown.get(name, f'by {found.how} there is {there}')}")
            elif value is None:
                wrong.append(f"{name} is not in the baseline")
            elif not math.isclose(now, value, rel_tol=SAME_COUNT):
                change = f" ({100 * (now / value - 1):+.3g} %)" if value else ""
                wrong.append(f"{in_words(name, now)}, {whose} {in_words(name, value)}: {now:,.15g} - {value:,.15g} = "
                             f"{now - value:+,.15g}{change}")  # fmt: skip
        if wrong:
            self._fail("; ".join(wrong), found, update=IF_MEANT if whose == "baseline" else "")

    def _assert_no_slower_than(
        self, call: Callable[..., object] | KernelProfile, arguments: Sequence[object], within: float,
        than: Callable[..., object],
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        if not callable(call):
            raise WrongUsage("than= takes turns with a call, not with a profile.", advice="Give the function itself.")
        if self.given is not None:
            return
        sides = [Iteration(_nothing, partial(_done, one, arguments), _nothing) for one in (call, than)]
        for side in sides * EFFORT.warmup:
            side.work(side.prepare())
        timer = gpu_timer() if self.device == "cuda" else cpu_timer()
        ratio = times_ratio([in_turns(sides[0], sides[1], timer, EFFORT).logs])
        ends = (None, None) if ratio.low is None or ratio.high is None else (1 / ratio.high, 1 / ratio.low)
        outcome = _judged(Change("time", ratio.reference_ns, ratio.mine_ns, *ends), within)
        tool, other = BY_EVENTS if self.device == "cuda" else BY_CLOCK, getattr(than, "__name__", "another")
        self._say(BY, f"in turns with {other}, by {tool}")
        self._say(TIME, duration(ratio.mine_ns))
        self._say(CHANGE, _change(outcome))
        if outcome.outcome == TRIPPED:
            pytest.fail(f"slower than what it is held to: {outcome.reason}", pytrace=False)

    def _say(self, name: str, value: str) -> None:
        """Add a property to the test's report; pytest-xdist returns it from its workers, and JUnit files show it."""
        self.item.user_properties.append((name, value))

    def _fail(self, what: str, found: KernelProfile, *, update: str = IF_MEANT) -> NoReturn:
        __tracebackhide__ = True
        how = f"Measured: {found}." + (f" Not by ncu: {self.why}." if self.why else "")
        flags = [UPDATE, *(flag for flag in (CPU, WITHOUT_NCU) if self.item.config.getoption(flag))]
        command = shlex.join(["pytest", *flags, self.item.nodeid])
        pytest.fail(
            "\n".join([f"{what}.", how, *([f"{update}: {command}"] if update else [])]),
            pytrace=False,
        )


def kernels_of_test(request: pytest.FixtureRequest) -> Kernels:
    """The value of the fixture for a test; skips the test without a GPU, unless it may run on the CPU."""
    item, config = request.node, request.config
    folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    updating = bool(config.getoption(UPDATE))
    under_ncu = os.environ.get(CHILD)
    if under_ncu is not None:
        return Kernels(item, folders, "cuda", "", "", updating, results_before(under_ncu))
    gpu = _gpu_here()
    without = bool(config.getoption(WITHOUT_NCU))
    if gpu is not None and not without and find_tool("ncu") is not None:
        return Kernels(item, folders, "cuda", gpu, "", updating)
    has_torch = find_spec("torch") is not None
    if gpu is not None and has_torch:
        return Kernels(item, folders, "cuda", gpu, WITHOUT_NCU if without else "ncu is not on PATH", updating)
    if gpu is not None:
        pytest.skip("neither ncu nor PyTorch is here to time a GPU: install Nsight Compute, or PyTorch")
    if not config.getoption(CPU):
        pytest.skip(NO_GPU)
    if not has_torch:
        pytest.skip(f"{CPU} counts operators of PyTorch, which is not installed: pip install torch")
    return Kernels(item, folders, "cpu", "", "no NVIDIA GPU", updating)


def _gpu_here() -> str | None:
    """The name of the first GPU that this process may use; None without one."""
    names = {str(gpu.index): gpu.name for gpu in gpus()}
    return next((names.get(one, one) for one in visible_gpus()), None) if names else None


def _held(base: Baseline, new: Baseline, within: float) -> GateOutcome:
    """The gate on the time of a call against its baseline, with the 95 % interval of a `bench` comparison."""
    rows = [
        {"latency_mean_ns": one.time_ns, "samples_ns": list(one.block_medians_ns), "process_means_ns": None}
        for one in (base, new)
    ]
    interval = ratio_interval(*estimates_of(*rows))
    return _judged(Change("time", base.time_ns, new.time_ns, *(interval or (None, None))), within)


def _judged(change: Change, within: float) -> GateOutcome:
    gate = parse_gate(f"time>{100 * within:.6f}%")
    return evaluate(gate, Subjects("test", [], Subject(("",), {"time": change})))


def _change(outcome: GateOutcome) -> str:
    """The change of a time without the times themselves: "+0.3 % [-0.1 %, +0.7 %], no change shown"."""
    return outcome.reason.partition(": ")[2].partition(": above")[0]


def _of_baseline(base: Baseline, name: str) -> float | None:
    return base.counts.get(name)


def _nothing() -> None:
    return None


def _done(call: Callable[..., object], arguments: Sequence[object], prepared: object) -> None:
    call(*arguments)


def _names(names: Sequence[str]) -> tuple[str, ...]:
    """The names in a list, or in a text with commas between them."""
    return tuple(name.strip() for name in (names.split(",") if isinstance(names, str) else names))


def _require_fraction(within: float) -> None:
    if not 0 <= within < math.inf:
        raise WrongUsage(f"within={within!r} is no fraction.", advice="Write within=0.05 for 5 %.")
