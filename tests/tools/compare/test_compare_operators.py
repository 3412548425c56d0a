"""Runs compared by calls of operators."""

from __future__ import annotations

from pathlib import Path

from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from tests.support.launches import launch, table
from tests.support.ran import ran


def test_launches_without_operators_are_refused_and_pass_no_gate(tmp_path: Path) -> None:
    """All of them were one row, "(no operator)", whose kernels hid their growth in each other's scatter."""
    run = tmp_path / "run.parquet"
    launches = table(launch("gemm", ns=10_000.0), launch("relu", ns=1_000.0))
    write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), run)
    junit = tmp_path / "gates.xml"
    found = ran("compare", str(run), str(run), "--operators", "--fail-on", "time>5%", "--junit", str(junit))
    assert found.exit_code == 1
    assert "knows its operator" in found.stderr
    assert b'errors="1"' in junit.read_bytes()
