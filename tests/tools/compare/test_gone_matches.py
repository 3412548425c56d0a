"""Gates of which a match is gone: its time may have gone to kernels of other names, so that none of them passes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from tests.support.launches import launch, table
from tests.support.ran import ran


def kernel(name: str, ns: float, grid: int = 1, **more: Any) -> list[Launch]:
    return [launch(name, ns=ns + n, grid=(grid, 1, 1), block=(64, 1, 1), iteration=n, **more) for n in range(3)]


def written(path: Path, *kernels: list[Launch]) -> str:
    launches = [one for each in kernels for one in each]
    write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), path)
    return str(path)


LOSS = "log_softmax_loss"
SOFTMAX = kernel("softmax_forward", 67_000, 8)
SPLIT = kernel("row_max", 120_000, 16) + kernel("row_exp_sum", 130_000, 32)


def test_a_gate_does_not_pass_for_the_match_that_stayed(tmp_path: Path) -> None:
    base = written(tmp_path / "base.parquet", SOFTMAX, kernel(LOSS, 10_000))
    new = written(tmp_path / "new.parquet", SPLIT, kernel(LOSS, 10_000))
    junit = tmp_path / "gates.xml"
    found = ran("compare", base, new, "--fail-on", "kernel:softmax:time>5%", "--junit", str(junit))
    assert found.exit_code == 4
    assert "not evaluated" in found.stdout
    assert "softmax_forward: has left the new run" in " ".join(found.stdout.split())
    suite = ET.parse(junit).find("testsuite")  # noqa: S314 - written by the command
    assert suite is not None
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


def test_a_gate_trips_all_the_same_where_another_match_grew(tmp_path: Path) -> None:
    base = written(tmp_path / "base.parquet", SOFTMAX, kernel(LOSS, 10_000))
    new = written(tmp_path / "new.parquet", SPLIT, kernel(LOSS, 20_000))
    assert ran("compare", base, new, "--fail-on", "kernel:softmax:time>5%").exit_code == 3


def test_a_gate_passes_where_the_gone_kernels_do_not_match_its_pattern(tmp_path: Path) -> None:
    base = written(tmp_path / "base.parquet", SOFTMAX, kernel(LOSS, 10_000))
    new = written(tmp_path / "new.parquet", SPLIT, kernel(LOSS, 10_000))
    assert ran("compare", base, new, "--fail-on", "kernel:loss:time>5%").exit_code == 0


@pytest.mark.parametrize("phases", [("forward", "backward"), ("backward", "forward")])
def test_a_layer_of_which_a_phase_is_gone_does_not_pass_by_the_other(tmp_path: Path, phases: tuple[str, str]) -> None:
    both = [kernel("k", 10_000, module="net.d", phase=phase) for phase in phases]
    base, new = written(tmp_path / "base.parquet", *both), written(tmp_path / "new.parquet", both[0])
    assert ran("compare", base, new, "--layers", "--fail-on", "layer:net.d:time>5%").exit_code == 4
    stays = f"layer:{phases[0]} net.d:time>5%"
    assert ran("compare", base, new, "--layers", "--fail-on", stays).exit_code == 0
