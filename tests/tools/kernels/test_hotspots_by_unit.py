"""`hotspots --units` in every format: which units did the FLOPs, with a last row for the run."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from ncu_tools.cli import run
from tests.conftest import SAMPLES
from tests.support.ran import below_head

RAW = str(SAMPLES / "d01-wide-raw.csv")


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    def _shown(*arguments: str) -> str:
        assert run(["hotspots", RAW, "--units", *arguments]) == 0
        return capsys.readouterr().out

    return _shown


def test_text_shows_only_units_that_a_kernel_used_and_the_basis(shown: Any) -> None:
    lines = below_head(shown("--wide")).splitlines()
    titles = ["FP64", "FP64 share", "FP32", "FP32 share", "tensor BF16", "tensor BF16 share", "basis"]
    places = [lines[0].index(title) for title in titles]
    assert places == sorted(places)
    assert "FP16" not in lines[0]
    assert "INT8" not in lines[0]
    assert lines[-1].startswith(" all kernels")


def test_the_units_of_every_kernel_add_up_to_its_flops(shown: Any) -> None:
    for row in json.loads(shown("--format", "json"))["rows"]:
        parts = [row[name] for name in ("flops_fp64", "flops_fp32", "tensor_flops_bf16")]
        shares = [row[f"{name}_share"] for name in ("flops_fp64", "flops_fp32", "tensor_flops_bf16")]
        assert sum(parts) == pytest.approx(row["flops"])
        assert shares == [pytest.approx(part / row["flops"]) if row["flops"] else None for part in parts]
        assert row["flops_basis"].startswith("sass fp64+fp32+fp16; tensor ops")


def test_the_last_row_is_the_run_and_marked_whatever_top_shows(shown: Any) -> None:
    every, two = (json.loads(shown("--format", "json", *top))["rows"] for top in ((), ("--top", "2")))
    assert [row["is_total"] for row in two] == [False, False, True]
    assert every[-1] == two[-1]
    assert two[-1]["flops"] == pytest.approx(sum(row["flops"] for row in every[:-1]))
    assert two[-1]["kernel"] == "all kernels"


def test_csv_holds_what_json_does(shown: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(shown("--format", "csv"))))
    expected = json.loads(shown("--format", "json"))["rows"]
    assert rows == [{name: "" if value is None else str(value) for name, value in row.items()} for row in expected]


def test_markdown_is_a_table_with_the_run_in_its_last_row(shown: Any) -> None:
    table = [line for line in shown("--format", "markdown").splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {table[0].count("|")}
    assert table[-1].startswith("| all kernels |")
