"""Files of earlier schema versions are read by this code, with the numbers that they had then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from ncu_launch.files import manifest
from ncu_launch.files.manifest import read_manifest
from ncu_parsers.schema import bench_table, tables

from ncu_tools.cli import cli
from tests.conftest import ROOT
from tests.support.ran import ran

RELEASED = ROOT / "tests" / "released"
TOTALS = {
    1: {
        "run": (64, 1486536.0, 7005568.0, 5779392.0),
        "report.parquet": (3, 1464790.0, None, 167775499.0),
        "sweep": (2, 12992335.221816048),
    }
}
"""Launches, time in ns, FLOPs and DRAM bytes; of sweeps, points and the sum of their mean latencies in ns."""

released = pytest.mark.parametrize("folder", sorted(RELEASED.glob("schema-*")), ids=lambda folder: folder.name)


def said(*arguments: str) -> dict[str, object]:
    """The JSON output of a command."""
    result = CliRunner().invoke(cli, [*arguments, "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def totals(folder: Path) -> dict[str, tuple[float | None, ...]]:
    """The totals of the kept files of one schema version."""
    from ncu_parsers.parquet.reader import read_bench, read_launches

    found: dict[str, tuple[float | None, ...]] = {}
    for name, file in (("run", "run/launches.parquet"), ("report.parquet", "report.parquet")):
        table = read_launches(folder / file)
        columns = [tables.floats(table, column) for column in ("duration_ns", "flops", "dram_bytes")]
        found[name] = (len(table), *(None if (column != column).all() else float(column.sum()) for column in columns))
    points = read_bench(folder / "sweep" / "bench.parquet").to_pylist()
    found["sweep"] = (len(points), sum(point["latency_mean_ns"] for point in points))
    return found


def test_every_schema_version_has_its_samples() -> None:
    newest = max(tables.SCHEMA_VERSION, bench_table.SCHEMA_VERSION, manifest.SCHEMA_VERSION)
    assert sorted(TOTALS) == list(range(1, newest + 1))
    assert sorted(path.name for path in RELEASED.glob("schema-*")) == [
        f"schema-{version}" for version in sorted(TOTALS)
    ]


@released
def test_every_number_is_unchanged(folder: Path) -> None:
    assert totals(folder) == TOTALS[int(folder.name.removeprefix("schema-"))]


@released
def test_manifests_are_read(folder: Path) -> None:
    assert read_manifest(folder / "run").workload["target"] == "squeezenet1_1"
    assert read_manifest(folder / "sweep").source == "bench"


@released
@pytest.mark.parametrize("command", ["hotspots", "roofline", "hotspots --by layer"])
@pytest.mark.parametrize("name", ["run", "report.parquet"])
def test_commands_read_runs(folder: Path, command: str, name: str) -> None:
    if (command, name) == ("hotspots --by layer", "report.parquet"):  # it has no modules
        assert "has no layers to show" in ran(*command.split(), str(folder / name)).stderr
    else:
        assert said(*command.split(), str(folder / name))["rows"]


@released
def test_commands_read_sweeps_and_resume_them(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "sweep", tmp_path / "sweep")
    assert said("bench", str(tmp_path / "sweep"))["rows"]


@released
def test_runs_are_compared_with_themselves(folder: Path) -> None:
    rows = said("compare", str(folder / "run"), str(folder / "run"))["rows"]
    assert isinstance(rows, list)
    assert {row["flops_ratio"] for row in rows} <= {1.0, None}
