"""Measured ceilings: the rates that PyTorch reaches on this machine become a machine file for its runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ncu_launch.bench import machine_process as measuring
from ncu_launch.bench.machine_process import cpu_caches
from ncu_launch.workload.operator_collector import opened_with_header
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings import machine_files as known
from ncu_tools.ceilings.ceilings import Ceilings, ceilings_of
from ncu_tools.ceilings.machine_files import (
    find_machine,
    machine_of_device,
    machines_of_capability,
    measured_machines,
    own_folder,
    parse_machine,
    problems,
)
from ncu_tools.ceilings.measured_machine import bandwidths, left_out, machine_id, machine_text, peaks
from ncu_tools.cli import cli
from tests.support.launches import launch, metric, table
from tests.support.models.models_here import models_run_here

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (pip install '.[models]')")

MIB = 1 << 20


def sample(what: str, size: int, burst: float, amount: int = 1, by: str = "") -> dict[str, Any]:
    return {
        "what": what, "size": size, "amount": amount, "burst": burst, "sustained": 0.9 * burst, "spread": 0.02,
        "seconds": 0.01, "by": by,
    }  # fmt: skip


def found(**changes: Any) -> dict[str, Any]:
    """A measurement of a made-up processor with 2 MiB of L2 and 8 MiB of L3."""
    return {
        "device": "cpu", "device_name": 'Pro"cessor\\ X', "threads": 2, "caches": {"l1": 32768, "l2": 2 * MIB, "l3": 8 * MIB},
        "clocks": ["2000 MHz"], "versions": {"torch": "2.0"}, "notes": [],
        "memory": [
            sample("copy", MIB // 2, 90e9), sample("triad", MIB // 2, 95e9), sample("read", MIB, 80e9),
            sample("copy", 4 * MIB, 40e9), sample("copy", 32 * MIB, 15e9), sample("read", 64 * MIB, 17e9),
        ],
        "products": [sample("fp32", 1024, 150e9, by="F.linear(A, B)"), sample("bf16", 2048, 900e9), sample("int8", 2048, 1e12)],
        **changes,
    }  # fmt: skip


class TestTheMachineFile:
    def test_takes_dram_from_arrays_larger_than_any_cache_and_l2_from_arrays_inside_it(self) -> None:
        best = bandwidths(found())
        assert (best["dram"]["burst"], best["l2"]["burst"]) == (
            17e9,
            90e9,
        )  # the triad of 3 x 512 KiB fills more than half

    def test_takes_dram_from_the_largest_arrays_if_none_exceeds_the_cache(self) -> None:
        best = bandwidths(found(caches={"l3": 512 * MIB}))
        assert best["dram"]["burst"] == 17e9
        assert "l2" not in best

    def test_has_the_units_of_the_device(self) -> None:
        assert set(peaks(found())) == {"fp32", "bf16"}
        assert set(peaks(found(device="cuda"))) == {"fp32", "tensor_bf16", "tensor_int8"}

    def test_is_valid_and_marked_measured_for_any_device_name(self) -> None:
        text = machine_text(found(), "2026-11-21")
        assert problems(text) == []
        machine = parse_machine("x", text)
        assert machine.measured
        assert machine.device_names == ('Pro"cessor\\ X',)
        assert machine.rates["fp32"].value == 150e9
        assert "sustained 90.0%" in machine.rates["fp32"].note
        assert machine.rates["dram"].source == "measured 2026-11-21, PyTorch 2.0, 2 threads, 2000 MHz"
        assert machine.rates["fp32"].source == "measured 2026-11-21, PyTorch 2.0, 2 threads, 2000 MHz, F.linear(A, B)"
        assert machine_id(found()) == "pro-cessor-x-2-threads-measured"

    def test_says_what_other_programs_took_of_the_cpu_meanwhile(self) -> None:
        source = parse_machine("x", machine_text(found(other_load=0.46), "2026-11-21")).source
        assert source.endswith("2000 MHz, while other programs took 46.0 % of the CPU")
        for little in (0.05, None):
            assert "while" not in parse_machine("x", machine_text(found(other_load=little), "2026-11-21")).source

    def test_leaves_out_an_implausible_rate_and_keeps_the_others(self) -> None:
        slow = found(products=[sample("fp32", 1024, 150e9), sample("bf16", 512, 0.694e9)])
        text = machine_text(slow, "2026-11-21")
        assert problems(text) == []
        assert set(parse_machine("x", text).rates) == {"fp32", "dram", "l2"}
        (note,) = left_out(slow)
        assert note.startswith("bf16 reached 694 MFLOP/s")
        assert left_out(found()) == []

    def test_in_the_users_folder_is_found_by_device_and_is_not_a_data_sheet(self) -> None:
        own_folder().mkdir(parents=True)
        (own_folder() / "mine.toml").write_text(machine_text(found(), "2026-11-21"), "utf-8")
        (own_folder() / "broken.toml").write_text("name = ", "utf-8")
        assert find_machine("mine").measured
        assert machine_of_device('Pro"cessor\\ X') is None
        assert [(machine.id, machine.threads) for machine in measured_machines('Pro"cessor\\ X')] == [("mine", 2)]
        assert "broken" not in known.machines()

    def test_of_the_user_replaces_a_shipped_one_of_the_same_id_if_valid(self) -> None:
        own_folder().mkdir(parents=True)
        (own_folder() / "a100-pcie-40gb.toml").write_text(machine_text(found(), "2026-11-21"), "utf-8")
        (own_folder() / "h100-sxm.toml").write_text("name = ", "utf-8")
        assert known.machines()["a100-pcie-40gb"].measured
        assert "a100-pcie-40gb" not in [machine.id for machine in machines_of_capability("8.0")]
        assert known.machines()["h100-sxm"].compute_capability == "9.0"
        assert list(known.machines()) == sorted(known.machines())

    def test_is_found_by_a_compute_capability_written_with_escapes(self) -> None:
        text = next(text for name, text in known.machine_files() if name == "a100-pcie-40gb")
        assert 'compute_capability = "8.0"' in text
        own_folder().mkdir(parents=True)
        (own_folder() / "mine.toml").write_text(text.replace('"8.0"', '"8\\u002e0"'), "utf-8")
        assert "mine" in [machine.id for machine in machines_of_capability("8.0")]

    def test_is_found_by_a_device_name_in_another_spelling(self) -> None:
        for name in ("NVIDIA A100-PCIE-40GB", "nvidia_a100 pcie-40gb"):
            machine = machine_of_device(name)
            assert machine is not None
            assert machine.id == "a100-pcie-40gb"


class TestCeilingsOfACpu:
    """Which of several measured machine files of one processor a run uses."""

    def measured_with(self, *threads: int | None) -> None:
        own_folder().mkdir(parents=True)
        for number in threads:
            text = machine_text(found(threads=number, products=[sample("fp32", 1024, (number or 0) * 1e10 + 5e9)]), "")
            (own_folder() / f"{machine_id(found(threads=number))}.toml").write_text(text, "utf-8")

    def ceilings(self, *threads: int | None) -> Ceilings:
        attributes = {"Device Name": 'Pro"cessor\\ X'}
        launches = [
            launch("mm", {} if number is None else {"threads": metric(float(number))}, ns=1.0, dram=1.0,
                   capability=None, attributes=attributes)
            for number in threads
        ]  # fmt: skip
        return ceilings_of(table(*launches))

    @pytest.mark.parametrize(
        ("measured", "run", "expected"),
        [
            ((1, 2, 4), 4, 4.5e10),
            ((1, 2, 4), 2, 2.5e10),
            ((1, 2), 4, None),  # measured with other numbers only
            ((1, 2), None, None),  # the run has no number of threads
            ((2,), None, 2.5e10),
            ((None, 2), 4, 5e9),  # a file without a number holds for any
            ((None, 2), 2, 2.5e10),
            ((None, 2), None, 5e9),
        ],
    )
    def test_are_those_of_the_run_s_number_of_threads(
        self, measured: tuple[int | None, ...], run: int | None, expected: float | None
    ) -> None:
        self.measured_with(*measured)
        (value,) = self.ceilings(run).per_launch["fp32"].tolist()
        assert value == pytest.approx(expected, nan_ok=True) if expected else value != value

    def test_of_other_threads_are_not_used_and_a_note_says_what_to_measure(self) -> None:
        self.measured_with(1, 2)
        result = self.ceilings(4)
        assert result.drawn == []
        assert result.notes == [
            'no ceilings are known for Pro"cessor\\ X (it was measured with 1 and 2 threads, and the run had 4): choose a '
            "machine with --machine NAME, or measure it where it is with OMP_NUM_THREADS=4 ncu-bench machines measure"
        ]
        assert "the run does not say its own" in self.ceilings(None).notes[0]

    def test_are_those_of_each_launch_if_runs_had_different_numbers_of_threads(self) -> None:
        self.measured_with(1, 2)
        result = self.ceilings(2, 1, 2)
        assert result.per_launch["fp32"].tolist() == [2.5e10, 1.5e10, 2.5e10]
        assert {ceiling.device for ceiling in result.drawn} == {'Pro"cessor\\ X, 2 threads', 'Pro"cessor\\ X, 1 thread'}

    def test_have_separate_ridge_points_if_runs_had_different_numbers_of_threads(self) -> None:
        self.measured_with(1, 2)
        devices = [{ceiling.device for ceiling in self.ceilings(number).drawn} for number in (1, 2)]
        assert devices == [{'Pro"cessor\\ X, 1 thread'}, {'Pro"cessor\\ X, 2 threads'}]

    def test_use_the_number_of_threads_that_the_collector_writes(self, tmp_path: Path) -> None:
        path = tmp_path / "operators.jsonl"
        record = {"operator": "aten.mm", "phase": None, "module": None, "iteration": 0, "ns": 5, "flops": 6, "read": 1,
                  "contraction_flops": 6, "unit": "fp32", "written": 1, "dtype": "float32", "shapes": ""}  # fmt: skip
        with opened_with_header(path, "cpu", "X", threads=3) as stream:
            stream.write(json.dumps(record) + "\n")
        found = parse([Source(str(path))]).table
        assert found is not None
        assert found.column("threads").to_pylist() == [3.0]


class TestMeasuring:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measuring, "LARGEST_BYTES", 4 * MIB)
        monkeypatch.setattr(measuring, "SIDES", (64, 256))
        monkeypatch.setattr(measuring, "LEAST_BYTES", 0)
        monkeypatch.setattr(measuring, "SAMPLE_S", 0.001)

    def test_gives_plausible_rates_that_equal_amount_divided_by_time(self) -> None:
        result = asdict(measuring.measure(0.02, "cpu"))
        works = {(one["what"], one["size"]) for one in result["memory"]}
        assert {("copy", 4 * MIB), ("triad", 4 * MIB), ("read", 4 * MIB)} <= works
        for one in (*result["memory"], *result["products"]):
            assert one["sustained"] == pytest.approx(one["amount"] / one["seconds"])
            assert one["burst"] >= one["sustained"]
        rates = {one["what"]: one for one in result["products"]}
        assert len({(one["what"], one["size"]) for one in result["products"]}) == len(result["products"])
        assert {"fp64", "fp32", "bf16"} <= set(rates)
        assert "tf32" not in rates
        assert 1e8 < rates["fp32"]["burst"] < 1e14
        amounts = {one["what"]: one["amount"] / one["size"] for one in result["memory"]}
        assert amounts == {"copy": 2, "triad": 3, "read": 1}

    def test_notes_the_size_from_which_products_fail_and_keeps_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = measuring._matrix

        def limited(name: str, side: int, device: str) -> Any:
            if name == "fp64" and side > 64:
                raise torch.OutOfMemoryError("no memory is left\nfor it")
            if name == "bf16":
                raise NotImplementedError  # as PyTorch does without an error if it has no kernel for a type
            return whole(name, side, device)

        monkeypatch.setattr(measuring, "_matrix", limited)
        found = measuring.measure(0.01, "cpu")
        assert "fp64 products larger than 64 do not run here: no memory is left" in found.notes
        assert "bf16 products do not run here: ?" in found.notes
        sides = {(one.what, one.size) for one in found.products}
        assert {("fp64", 64), ("fp32", 64), ("fp32", 256)} <= sides
        assert not {("fp64", 256), ("bf16", 64)} & sides

    def test_takes_the_fastest_operator_of_each_type_and_drops_much_slower_ones(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = {"slow": 0.004, "fast": 0.0, "not here": 0.0}
        tried: list[tuple[str, int]] = []

        def run(operator: str, side: int) -> None:
            tried.append((operator, side))
            if operator == "not here":
                raise NotImplementedError  # as PyTorch does if it has no kernel for a layout
            time.sleep(seconds[operator])

        monkeypatch.setattr(
            measuring, "_operators", lambda name, one, two: {way: partial(run, way, len(one)) for way in seconds}
        )
        products = list(measuring._products_of("bf16", "cpu", measuring.Pace(0.01)))
        assert [(one.size, one.by) for one in products] == [(64, "fast"), (256, "fast")]
        assert {side for operator, side in tried if operator != "fast"} == {64}

    def test_names_the_operator_of_every_product(self) -> None:
        for name in ("fp32", "bf16", "int8"):
            one, two = (measuring._matrix(name, 64, "cpu") for _ in range(2))
            operators = measuring._operators(name, one, two)
            products = [work for operator, work in operators.items() if operator != "F.conv2d, 4x4"]
            assert len(products) >= len(operators) - 1
            assert all(work().numel() == 64 * 64 for work in products)
            assert {one.by for one in measuring._products_of(name, "cpu", measuring.Pace(0.01))} <= set(operators)

    def test_keeps_the_better_of_two_samples_of_each_operation(self) -> None:
        bursts = iter((3.0, 5.0, 4.0, 1.0))

        def samples() -> Iterator[measuring.Sample]:
            for what in ("copy", "read"):
                yield measuring.Sample(what, MIB, MIB, next(bursts), 1.0, 0.0, 1.0)

        assert [(one.what, one.burst) for one in measuring._twice(samples)] == [("copy", 4.0), ("read", 5.0)]

    def test_of_a_missing_gpu_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        models_run_here(monkeypatch)
        if torch.cuda.is_available():
            pytest.fail("this test is for machines without a GPU")
        result = CliRunner().invoke(cli, ["machines", "measure", "--on", "cuda", "--seconds", "0.01"])
        assert result.exit_code != 0
        assert "no CUDA device" in str(result.exception)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "ncu_tools.cli.collecting.machines.measured", lambda seconds, device: pytest.fail("it was measured")
    )
    result = CliRunner().invoke(cli, ["machines", "measure", "-o", str(tmp_path / "missing" / "mine.toml")])
    assert result.exit_code == 1
    assert "could not be written" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_caches_are_read_as_linux_describes_them(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        (("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"))
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n", "utf-8")
    (tmp_path / "index9").mkdir()
    assert cpu_caches(tmp_path) == {"l1": 48 * 1024, "l2": 2 * MIB}
    assert cpu_caches(tmp_path / "missing") == {}


def test_the_command_keeps_the_file_and_later_runs_use_its_ceilings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ncu_tools.cli.collecting.machines.measured", lambda seconds, device: found())
    result = CliRunner().invoke(cli, ["machines", "measure"])
    assert result.exit_code == 0, result.output
    assert "17 GB/s" in result.output
    kept = own_folder() / "pro-cessor-x-2-threads-measured.toml"
    assert kept.is_file()
    shown = CliRunner().invoke(cli, ["machines", "pro-cessor-x-2-threads-measured"])
    assert "900 GFLOP/s" in shown.output
    elsewhere = tmp_path / "other.toml"
    assert CliRunner().invoke(cli, ["machines", "measure", "-o", str(elsewhere)]).exit_code == 0
    assert elsewhere.read_text("utf-8") == kept.read_text("utf-8")


class Clock:
    """Stands for `time` where operators are timed: operators take exactly what they sleep, on a busy machine too."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(measuring, "time", made)
    return made


def test_an_operator_that_is_slow_at_the_smallest_size_may_win_at_the_next(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As oneDNN's products do while the allocator still gives their buffers back after each."""

    def operators(name: str, one: Any, two: Any) -> dict[str, Any]:
        first = len(one) == 8
        return {
            "steady": lambda: clock.sleep(0.004),
            "late": lambda: clock.sleep(0.008 if first else 0.002),
            "slow": lambda: clock.sleep(0.02 if first else 0.001),
        }

    monkeypatch.setattr(measuring, "SIDES", (8, 16))
    monkeypatch.setattr(measuring, "_operators", operators)
    samples = list(measuring._products_of("fp32", "cpu", measuring.Pace(0.03, least=2, far_behind=1.3)))
    assert [(one.size, one.by) for one in samples] == [(8, "steady"), (16, "late")]


def test_an_operator_that_larger_sizes_lack_leaves_them_to_the_others(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As convolutions do, where a machine is fast enough for products of 8,192 rows."""

    def operators(name: str, one: Any, two: Any) -> dict[str, Any]:
        small = {"small": lambda: clock.sleep(0.001)} if len(one) == 8 else {}
        return {"any": lambda: clock.sleep(0.008), **small}

    monkeypatch.setattr(measuring, "SIDES", (8, 16))
    monkeypatch.setattr(measuring, "_operators", operators)
    samples = list(measuring._products_of("fp32", "cpu", measuring.Pace(0.03, least=2, far_behind=1.3)))
    assert [(one.size, one.by) for one in samples] == [(8, "small"), (16, "any")]


@pytest.mark.parametrize(
    ("each_s", "left_s", "timed"),
    [(0.001, 10.0, [(8, 3), (16, 3)]), (0.001, 0.0, [(8, 1)]), (0.004, 0.25, [(8, 3)])],
    ids=["in time", "over", "too short for the next size"],
)
def test_products_of_a_slow_machine_end_in_time_with_the_operators_timed_until_then(
    each_s: float, left_s: float, timed: list[tuple[int, int]], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[int] = []
    whole = measuring._sampled

    def noted(name: str, side: int, *others: Any) -> Any:
        sampled.append(side)
        return whole(name, side, *others)

    monkeypatch.setattr(measuring, "_sampled", noted)
    monkeypatch.setattr(measuring, "SIDES", (8, 16))
    monkeypatch.setattr(
        measuring, "_operators", lambda name, one, two: {way: partial(clock.sleep, each_s) for way in "abc"}
    )
    pace = measuring.Pace(0.001, least=2, until=clock.monotonic() + left_s)
    products = list(measuring._products_of("fp32", "cpu", pace))
    assert [(one.size, sampled.count(one.size)) for one in products] == timed


@pytest.mark.parametrize("side", [512, 1024])
def test_a_convolution_that_stands_for_a_product_has_as_many_operations(side: int) -> None:
    (work,) = measuring._convolution(side, torch.float32).values()
    out = work()
    assert (out.shape[0], out.shape[1]) == (1, measuring.CHANNELS)
    operations = 2 * out.numel() * measuring.CHANNELS * measuring.WINDOW**2
    assert operations == 2 * side**3
    assert float(out[0, 0, 0, 0]) == measuring.CHANNELS * measuring.WINDOW**2, "every input is multiplied"


@pytest.mark.parametrize("side", [8, 96, 8192])
def test_a_side_whose_operations_no_convolution_fits_or_that_is_too_large_has_none(side: int) -> None:
    assert measuring._convolution(side, torch.float32) == {}
