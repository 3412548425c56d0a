"""Kernels summed as a file of launches is read, and cached beside it: the result of the whole table, to the last digit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet import reader, writer
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import parse
from ncu_parsers.schema.tables import with_metadata
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli.reading.hotspots import command
from ncu_tools.kernels import kernel_cache
from ncu_tools.kernels.hotspots import RunSums, hotspots
from ncu_tools.kernels.kernel_cache import cache_kernels, cached_kernels, hotspots_of
from ncu_tools.kernels.kernel_row import GROUPS, ORDERS, Hotspots, kernels_table
from ncu_tools.runs.loading import LAUNCHES, load
from ncu_tools.runs.run import Run
from tests.conftest import SAMPLES
from tests.support.launches import launch, metric, sass, table, tensor
from tests.support.nightly import by_day, one_in
from tests.support.reports import needs_shared_reports, sample_files, shared_reports

PEAK, CLOCK = "dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"
FREQUENCY, WIDTH = "device__attribute_max_mem_frequency_khz", "device__attribute_global_memory_bus_width"


def parsed(path: Path) -> pa.Table | None:
    return parse([Source(str(path))]).table


def kept_in(folder: Path, rows: pa.Table) -> Run:
    """A file of launches in row groups of three."""
    path = folder / LAUNCHES
    write_table(with_metadata(rows, {"schema_version": 1, "notes": ["read so"]}), path)
    return Run.in_file(str(path), path)


def of_whole(run: Run, **asked: Any) -> Hotspots:
    whole = load(str(run.path)).table
    machine = asked.pop("machine", None)
    result = hotspots(whole, ceilings_of(whole, machine), **asked)
    return replace(result, notes=["read so", *result.notes])


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROWS_OF_A_GROUP", 3)
    monkeypatch.setattr(reader, "ROWS_PER_BATCH", 5)


def assert_batches_change_nothing(path: Path, folder: Path) -> None:
    rows = parsed(path)
    if rows is None:
        return
    run = kept_in(folder, rows)
    for group in GROUPS:
        assert hotspots_of(run, group=group) == of_whole(run, group=group)
    machine = find_machine("h100-sxm")
    assert hotspots_of(run, machine) == of_whole(run, machine=machine)


@pytest.mark.parametrize(
    "path", by_day([*sample_files()[::12], SAMPLES / "d12-range-nvtx.csv"], sample_files()), ids=lambda path: path.name
)
def test_sizes_of_batches_do_not_change_the_result(path: Path, tmp_path: Path) -> None:
    assert_batches_change_nothing(path, tmp_path)


@needs_shared_reports
@pytest.mark.parametrize("path", one_in(30, shared_reports("ncu_csv")), ids=lambda path: path.name)
@pytest.mark.slow
def test_sizes_of_batches_do_not_change_the_result_of_a_real_report(path: Path, tmp_path: Path) -> None:
    assert_batches_change_nothing(path, tmp_path)


def test_every_batch_of_a_file_has_the_dram_ceiling_of_the_longest_launch_of_the_file(tmp_path: Path) -> None:
    """The clock that ncu prints differs from launch to launch, and that of the longest one is right."""
    counted = sass(ffma=1e6) | tensor()

    def at_clock(ns: float, hz: float) -> Any:
        peaks = {PEAK: metric(96.0, "byte"), CLOCK: metric(hz, "hz")}
        return launch(f"k{ns:g}", counted | peaks, ns=ns, dram=ns * 100, capability="8.6")

    times = [8e3 * 1.3**number for number in range(29)]
    run = kept_in(tmp_path, table(*(at_clock(ns, 7.25e9 - 1e12 / ns) for ns in reversed(times))))
    assert hotspots_of(run, find_machine("a40")) == of_whole(run, machine=find_machine("a40"))
    true = 96 * (7.25e9 - 1e12 / times[-1])
    assert [row.bound_fraction for row in hotspots_of(run, find_machine("a40")).rows] == [
        pytest.approx(100e9 / true, rel=1e-12)
    ] * len(times)


@pytest.mark.parametrize(("sms", "ceilings"), [(56.0, False), (108.0, True)])
def test_batches_of_a_file_know_the_number_of_sms_that_tells_boards_apart(
    sms: float, ceilings: bool, tmp_path: Path
) -> None:
    """An A30 has the compute capability of an A100, and half of its SMs."""
    counted = sass(ffma=1e6) | tensor() | {"launch__sm_count": metric(sms)}
    run = kept_in(tmp_path, table(launch("k", counted, ns=1e6, dram=1e6, capability="8.0")))
    found = hotspots_of(run)
    assert found == of_whole(run)
    assert any("ceilings are what a100-pcie-40gb" in note for note in found.notes) is ceilings


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(1, 1e12)), min_size=2, max_size=30), st.data())
@pytest.mark.slow
def test_launches_in_any_two_batches_give_the_same_digits(
    launches: list[tuple[str, float]], data: st.DataObject
) -> None:
    work = [sass(ffma=ns) | tensor(tf32_dst_fp32=ns / 3) for _, ns in launches]
    rows = table(*(launch(name, work[at], ns=ns, dram=ns * 7) for at, (name, ns) in enumerate(launches)))
    cut = data.draw(st.integers(0, len(rows)))
    parts, whole = RunSums("name"), RunSums("name")
    whole.add(rows, ceilings_of(rows))
    for part in (rows.slice(0, cut), rows.slice(cut)):
        parts.add(part, ceilings_of(part))
    assert sorted(parts.kernels(), key=lambda kernel: kernel.kernel) == sorted(
        whole.kernels(), key=lambda kernel: kernel.kernel
    )
    assert parts.notes() == whole.notes()


def test_notes_with_medians_are_those_of_all_launches(tmp_path: Path) -> None:
    def on_a_cut_board(peak: float) -> dict[str, Any]:
        board = {FREQUENCY: metric(1_000_000.0), WIDTH: metric(5120.0, "bit")}
        return board | {PEAK: metric(peak, "byte"), CLOCK: metric(1e9, "hz")}

    rows = table(*(launch("k", on_a_cut_board(1400.0 + 13 * number), ns=10.0) for number in range(20)))
    run = kept_in(tmp_path, rows)
    result = hotspots_of(run)
    assert result == of_whole(run)
    assert any("DRAM peak is 1523.5 bytes per cycle" in note for note in result.notes)


def some_launches() -> pa.Table:
    return table(
        *(launch(f"kernel_{n % 3}", sass(ffma=n * 1e6) | tensor(fp64=n), ns=100.0 + n, dram=4096.0) for n in range(20)),
        launch("untimed", sass(ffma=5.0)),
        launch("failed", failed=True),
    )


def unread(*_: object) -> Any:
    raise AssertionError("the launches were read")


class TestCachedKernels:
    @pytest.mark.parametrize("by", ORDERS)
    def test_are_used_in_every_order_without_reading_launches(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        run = kept_in(tmp_path, some_launches())
        expected = of_whole(run, by=by)
        cache_kernels(tmp_path / LAUNCHES)
        monkeypatch.setattr(kernel_cache, "_sums_of", unread)
        result = hotspots_of(run, by=by)
        assert kernels_table(result.rows).equals(kernels_table(expected.rows))
        assert result.notes == expected.notes

    @pytest.mark.parametrize(
        "asked", [{"group": "short"}, {"group": "grid"}, {"machine": find_machine("v100-sxm2-16gb")}]
    )
    def test_are_not_used_for_other_groups_or_machines(self, tmp_path: Path, asked: dict[str, Any]) -> None:
        run = kept_in(tmp_path, some_launches())
        cache_kernels(tmp_path / LAUNCHES)
        assert hotspots_of(run, **asked) == of_whole(run, **asked)

    def test_are_ignored_if_the_launches_changed(self, tmp_path: Path) -> None:
        run = kept_in(tmp_path, some_launches())
        cache_kernels(tmp_path / LAUNCHES)
        kept_in(tmp_path, some_launches().slice(1))
        assert cached_kernels(tmp_path / LAUNCHES) is None
        assert hotspots_of(run) == of_whole(run)

    def test_are_ignored_if_a_machine_file_is_new(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kept_in(tmp_path, some_launches())
        cache_kernels(tmp_path / LAUNCHES)
        assert cached_kernels(tmp_path / LAUNCHES) is not None
        machines = tmp_path / "ncu-bench" / "machines"
        machines.mkdir(parents=True)
        (machines / "mine.toml").write_text("schema = 1\n", encoding="utf-8")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        assert cached_kernels(tmp_path / LAUNCHES) is None

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda path: path.write_bytes(path.read_bytes()[:-20]),
            lambda path: path.write_text("no Parquet"),
            lambda path: write_table(pa.table({"kernel": ["k"]}), path),
            lambda path: path.unlink(),
        ],
        ids=["cut", "text", "of an earlier release", "gone"],
    )
    def test_are_ignored_if_they_cannot_be_read(self, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
        run = kept_in(tmp_path, some_launches())
        cache_kernels(tmp_path / LAUNCHES)
        spoil(tmp_path / "kernels.parquet")
        assert hotspots_of(run) == of_whole(run)

    def test_are_valid_for_a_copy_of_the_run(self, tmp_path: Path) -> None:
        kept_in(tmp_path, some_launches())
        cache_kernels(tmp_path / LAUNCHES)
        (tmp_path / "copy").mkdir()
        for name in ("launches.parquet", "kernels.parquet"):
            (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
        assert cached_kernels(tmp_path / "copy" / "launches.parquet") is not None

    @pytest.mark.parametrize("options", [[], ["--units"], ["--sort", "headroom"], ["--top", "2"], ["--diagnose"]])
    def test_do_not_change_the_output_of_the_command(self, tmp_path: Path, options: list[str]) -> None:
        run = kept_in(tmp_path, some_launches())
        asked = [str(run.path), "--format", "json", *options]
        before = CliRunner().invoke(command, asked)
        cache_kernels(tmp_path / LAUNCHES)
        after = CliRunner().invoke(command, asked)
        assert before.exit_code == after.exit_code == 0
        assert json.loads(before.output) == json.loads(after.output)
