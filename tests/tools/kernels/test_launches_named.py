"""Instructions and samples of the launches of a phase, layer, device or rank (launches_named), as typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ncu_tools.kernels.source.launches_named import launches_named
from ncu_tools.runs.selection import Selection
from tests.conftest import SAMPLES, SHARED
from tests.support.binary_reports import Kernel, report_of
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports

SOURCE_PAGE = str(SAMPLES / "d20-source-page.csv")
TRITON = SHARED / "reports/ncu_rep_full/AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
SAMPLES_AT = "smsp__pcsamp_sample_count"
ACTIVE = "sm__cycles_active.avg"


def launch(kernel: str, samples: int, mean: float, lasted: float) -> Kernel:
    """A launch with samples at two instructions, and four SMs that were active unevenly."""
    each: dict[str | int, float] = {0: mean - 1, 1: mean - 1, 2: mean, 3: mean + 2}
    counts: dict[str | int, float] = {4096: samples, 4112: 1}
    metrics: dict[str, Any] = {
        SAMPLES_AT: (samples + 1.0, counts),
        ACTIVE: (mean, each),
        "gpu__time_duration.sum": lasted,
    }
    return Kernel(kernel, metrics)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What parse wrote of three launches, the first two of gemm; phases, layers and ranks are added to the launches."""
    folder = tmp_path_factory.mktemp("run")
    report = folder / "three.ncu-rep"
    report.write_bytes(
        report_of([launch("gemm", 70, 10, 900), launch("gemm", 20, 20, 500), launch("copy", 5, 30, 100)])
    )
    written = folder / "launches.parquet"
    assert ran("parse", str(report), "-o", str(written), "--instructions").exit_code == 0
    table = pq.read_table(written)
    columns: dict[str, list[Any]] = {
        "phase": ["forward", "backward", "backward"], "module": ["net.a", "net.a", "net.b"], "rank": [0, 1, 1],
    }  # fmt: skip
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        kind = table.schema.field(name).type
        array = pa.array(values).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(values, kind)
        table = table.set_column(at, table.schema.field(name), array.cast(kind))
    pq.write_table(table, written)
    report.unlink()
    return folder


def shown(*arguments: str) -> dict[str, Any]:
    result = ran("source", *arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    ("selection", "kernel", "samples"),
    [
        ([], "gemm", 92),
        (["--phase", "forward"], "gemm", 71),
        (["--phase", "backward"], "gemm", 21),
        (["--phase", "backward", "--kernel", "copy"], "copy", 6),
        (["--layer", "net.b"], "copy", 6),
        (["--rank", "1"], "gemm", 21),
        (["--phase", "forward,backward"], "gemm", 92),
    ],
)
def test_source_sums_the_instructions_of_the_selected_launches(
    run: Path, selection: list[str], kernel: str, samples: int
) -> None:
    for named in (run, run / "launches.parquet", run / "instructions.parquet"):
        found = shown(str(named), *selection)
        assert (found["kernel"], sum(row["samples"] for row in found["rows"])) == (kernel, samples)


def test_a_note_says_which_launches_these_are(run: Path) -> None:
    note = "restricted to phase backward: 2 of 3 launches with 40.0 % of the time; shares and sums are of these"
    assert note in shown(str(run), "--phase", "backward")["notes"]
    assert "restricted" not in str(shown(str(run))["notes"])


def test_the_launches_are_known_by_report_and_number(run: Path) -> None:
    found = launches_named(str(run), Selection(phases=("backward",)), lambda source: None)
    assert sorted(number for _, number in found.numbers if number is not None) == [1, 2]


def test_a_selection_that_leaves_nothing_says_what_there_is(run: Path) -> None:
    result = ran("source", str(run), "--phase", "optimizer")
    assert result.exit_code == 1
    assert "for phase optimizer. Its phases are forward, backward." in result.stderr


@pytest.mark.parametrize("command", ["source", "samples"])
@pytest.mark.parametrize(
    ("selection", "known"),
    [
        (["--phase", "forward"], "Its phases are not known."),
        (["--layer", "net"], "Its layers are not known."),
        (["--rank", "0"], "Its ranks are not known."),
        (["--device", "0"], "Its devices are not known."),
    ],
)
def test_a_run_that_knows_no_phase_says_so_as_every_command_does(
    command: str, selection: list[str], known: str
) -> None:
    result = ran(command, SOURCE_PAGE, *selection)
    assert result.exit_code == 1
    assert known in result.stderr


def test_the_launches_of_a_raw_page_are_not_those_of_a_source_page_beside_it(tmp_path: Path) -> None:
    for name in ("d20-source-page.csv", "d01-wide-raw.csv"):
        (tmp_path / name).write_bytes((SAMPLES / name).read_bytes())
    result = ran("source", str(tmp_path), "--device", "0")
    assert result.exit_code == 1
    assert "a source page, which numbers launches by itself" in result.stderr


def test_balance_is_that_of_the_longest_of_the_selected_launches(run: Path) -> None:
    result = ran("kernel", "--part", "balance", str(run), "--phase", "backward", "--format", "json")
    assert result.exit_code == 1  # values of each SM are in the report, which is gone
    assert "Launch 1 of gemm has no counter of single units" in result.stderr


@needs_shared_reports
@pytest.mark.slow
def test_samples_over_time_are_those_of_the_selected_launches() -> None:
    result = ran("kernel", "--part", "samples", str(TRITON), "--device", "0", "--format", "json")
    assert (
        json.loads(result.stdout)["rows"]
        == json.loads(ran("kernel", "--part", "samples", str(TRITON), "--format", "json").stdout)["rows"]
    )
    refused = ran("kernel", "--part", "samples", str(TRITON), "--device", "7")
    assert (refused.exit_code, "Its devices are 0." in refused.stderr) == (1, True)
