"""Gates on a history: the newest run against a window, drifts against the first runs, and what they cannot tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncu_tools.compare.gate import WINDOW, GateOutcome, evaluate, parse_gate
from ncu_tools.history.held import held
from ncu_tools.history.series import History, history_of
from tests.support.histories import GHZ, counted, history, run_folder, summary, times
from tests.support.ran import ran

BEFORE = [counted("gemm", us) for us in times(25)]


def judged(text: str, found: History) -> GateOutcome:
    gate = parse_gate(text)
    return evaluate(gate, held(found, gate.measure, gate.window or WINDOW, drift=gate.drift))


def outcome(text: str, *more: list, level: float = 100.0) -> str:  # type: ignore[type-arg]
    """How a gate ends on 25 runs and one more."""
    return judged(text, history(*BEFORE, *(more or [counted("gemm", level)]))).outcome


class TestAWindow:
    def test_trips_beyond_its_limit_and_noise_and_passes_within_the_limit(self) -> None:
        assert outcome("time>3% of window:20", level=110) == "tripped"
        assert outcome("time>3% of window:20", level=102) == "passed"
        assert outcome("time>0.5%", level=101.5) == "not shown"
        assert outcome("any:time>3%", level=110) == outcome("kernel:gem:time>3%", level=110) == "tripped"

    def test_says_the_numbers_and_of_how_many_runs(self) -> None:
        reason = judged("time>3% of window:7", history(*BEFORE, counted("gemm", 110))).reason
        assert reason.startswith("time of 7 runs 100.")
        assert "-> 110 µs" in reason

    def test_holds_no_more_runs_than_it_says(self) -> None:
        rising = [counted("gemm", us) for us in (*times(10, 100, 0.2), *times(10, 120, 0.2))]
        assert judged("time>3% of window:10", history(*rising, counted("gemm", 121))).outcome == "passed"
        assert judged("time>5% of window:20", history(*rising, counted("gemm", 121))).outcome == "not shown"

    def test_of_counts_is_exact(self) -> None:
        more = counted("gemm", 100, instructions=1.02e6)
        assert outcome("any:instructions>1%", more) == "tripped"
        assert outcome("any:instructions>3%", more) == "passed"
        assert outcome("instructions>1%", more) == "tripped"
        assert outcome("any:registers>0%") == "passed"

    def test_of_many_kernels_asks_more_of_each(self) -> None:
        names = [f"k{number}" for number in range(200)]
        runs = [
            [one for name in names for one in counted(name, 100 + wave, instructions=1)] for wave in (0, 1, -1, 0.5, 0)
        ]
        newest = [one for name in names for one in counted(name, 103.5)]
        found = history(*runs, newest)
        assert judged("kernel:k7$:time>1%", found).outcome == "tripped"
        assert judged("any:time>1%", found).outcome == "not shown"


class TestADrift:
    def test_that_stays_below_every_step_is_found_against_the_first_runs(self) -> None:
        drifting = history(*(counted("gemm", us * 1.003**at) for at, us in enumerate(times(30, 100, 0.3))))
        assert judged("time>3% of window:20", drifting).outcome != "tripped"
        assert judged("drift:time>3% of window:5", drifting).outcome == "tripped"
        assert judged("any:drift:time>3% of window:5", drifting).outcome == "tripped"

    def test_is_none_of_one_run(self) -> None:
        assert outcome("drift:time>3%", level=150) == "passed"


class TestWhatCannotBeTold:
    def test_is_another_device(self) -> None:
        def on(*devices: str) -> History:
            runs = enumerate(zip(devices, times(len(devices)), strict=True))
            return history_of(
                [summary(f"r{at}", counted("gemm", us), conditions={"GPU": gpu}) for at, (gpu, us) in runs]
            )

        found = judged("time>3%", on(*["A100"] * 5, "H100"))
        assert (found.outcome, found.reason) == ("not evaluated", "r5 ran on H100, and the runs before it on A100")
        again = judged("time>3%", on("A100", "H100", "A100", "H100"))
        assert (again.outcome, "of 1 run " in again.reason) == ("passed", True)

    def test_is_another_clock_unless_it_is_to_be_judged(self) -> None:
        runs = [summary(f"r{at}", one, clock=GHZ * 1e9) for at, one in enumerate(BEFORE)]
        found = history_of([*runs, summary("new", counted("gemm", 110), clock=GHZ * 1e9 / 1.1)])
        assert judged("time>3%", found).outcome == "not evaluated"
        subjects = held(found, "time", 20)
        assert evaluate(parse_gate("time>3%"), subjects, clocks_anyway=True).outcome == "tripped"

    def test_is_a_kernel_that_is_gone_or_a_measure_that_no_run_has(self) -> None:
        other = counted("sort", 5, grid=(3, 1, 1))
        assert outcome("kernel:gemm:time>3%", other) == "not evaluated"
        assert "perhaps under another name" in judged("kernel:gemm:time>3%", history(*BEFORE, other)).reason
        assert outcome("any:spills>3%") == "not evaluated"
        assert (
            judged("time>3%", history(counted("gemm"))).reason
            == "there is only one run, and none before it to compare with"
        )
        assert outcome("layer:conv:time>3%") == "not evaluated"

    def test_are_registers_of_a_run(self) -> None:
        found = judged("registers>0%", history(*BEFORE))
        assert (found.outcome, "gate any:registers" in found.reason) == ("not evaluated", True)


class TestOtherWork:
    def test_refuses_sums_and_judges_kernels(self) -> None:
        more = counted("gemm", 100, 100)
        assert outcome("time>3%", more) == "refused"
        assert outcome("any:time>3%", more) == "passed"
        assert outcome("launches>3%", more) == "tripped"
        assert "1 -> 2 launches of gemm" in judged("time>3%", history(*BEFORE, more)).reason

    def test_leaves_runs_of_other_work_out_of_the_window(self) -> None:
        runs = [*BEFORE[:5], counted("gemm", 100, 100), counted("gemm", 101)]
        found = judged("time>3%", history(*runs))
        assert (found.outcome, "of 5 runs" in found.reason) == ("passed", True)


@pytest.mark.parametrize(
    ("gate", "level", "code"),
    [("time>3%", 100, 0), ("time>3%", 150, 3), ("kernel:none:time>3%", 100, 4), ("speed>3%", 100, 2)],
)
def test_the_command_ends_with_the_code_of_its_gates(tmp_path: Path, gate: str, level: float, code: int) -> None:
    for number, us in enumerate([*times(4, 100, 0.3), level]):
        run_folder(tmp_path / "runs" / f"r{number}", counted("gemm", us), f"2026-03-{number + 1:02}T10:00:00+00:00")
    done = ran("history", str(tmp_path / "runs"), "--fail-on", gate, "--junit", str(tmp_path / "gates.xml"))
    assert done.exit_code == code, done.stderr
    assert (tmp_path / "gates.xml").exists() == (code != 2)
    if code != 2:
        assert '<testsuite name="ncu-bench history"' in (tmp_path / "gates.xml").read_text()
        assert gate in done.stdout


def test_two_runs_are_not_held_to_gates_of_many(tmp_path: Path) -> None:
    one = str(run_folder(tmp_path / "one", counted("gemm")))
    for gate in ("time>3% of window:20", "drift:time>5%", "any:instructions>1%"):
        done = ran("compare", one, one, "--fail-on", gate)
        assert done.exit_code == 2
        assert "is a gate on many runs" in done.stderr


@pytest.mark.parametrize(
    "text", ["time>3% of window:0", "time>3% of window", "drift:drift:time>3%", "drift>3%", "time>3% window:20"]
)
def test_what_only_looks_like_a_gate_is_none(text: str) -> None:
    with pytest.raises(Exception, match="is no gate"):
        parse_gate(text)


def test_a_pattern_may_hold_colons_and_a_drift_stands_behind_it() -> None:
    gate = parse_gate("kernel:ns::gemm:drift:time>5% of window:7")
    assert gate.pattern is not None
    assert (gate.pattern.pattern, gate.drift, gate.window, gate.measure) == ("ns::gemm", True, 7, "time")
