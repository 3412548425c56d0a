"""What the instructions of kernels do, by kind of opcode."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from ncu_parsers.schema import tables

from ncu_tools.kernels.source.instruction_mix import COLUMNS, kind_of, kinds, mix_notes, mixes
from tests.conftest import SAMPLES
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports, table_of

KINDS = {
    "FFMA": "fp32", "DADD": "fp64", "HFMA2": "fp16", "HMMA.16816.F32.BF16": "tensor", "HGMMA.64x256x16.F32.BF16": "tensor",
    "IMAD.WIDE": "integer", "IMAD.MOV.U32": "move", "HFMA2.MMA": "move", "UIADD3": "integer", "ULDC.64": "load_store",
    "LDG.E.128": "load_store", "BRA": "control", "MUFU.EX2": "special", "F2FP.BF16.PACK_AB": "conversion", "QUUX": "other",
}  # fmt: skip


@pytest.mark.parametrize("opcode", KINDS)
def test_an_opcode_is_of_this_kind(opcode: str) -> None:
    assert kind_of(opcode) == KINDS[opcode]


def test_launches_of_a_kernel_are_added_and_those_without_counts_are_told() -> None:
    table = pa.table({"kernel_name": ["a", "a", "b"], COLUMNS[0]: ["FFMA: 30; BRA: 10", "FFMA: 60", None]})
    first, second = mixes(table)
    assert (first.kernel, first.launches, first.counted_launches, first.total) == ("a", 2, 2, 100)
    assert (first.share("fp32"), first.share("control"), first.share("tensor")) == (0.9, 0.1, 0.0)
    assert second.share("fp32") is None
    assert "1 kernel has no counts per opcode" in mix_notes([first, second])[0]


def test_opcodes_of_no_known_kind_are_named() -> None:
    (mix,) = mixes(pa.table({"kernel_name": ["a"], COLUMNS[0]: ["QUUX.X: 3"]}))
    assert mix.share("other") == 1
    assert "QUUX.X" in mix_notes([mix])[0]


@needs_shared_reports
def test_every_opcode_of_real_reports_has_a_kind_and_they_add_up_to_the_instructions() -> None:
    counted = 0
    for folder in ("ncu_rep", "ncu_rep_full"):
        for path in shared_reports(folder):
            launches = table_of(path)
            assert launches is not None
            for mix in mixes(launches):
                assert mix.unlisted == {}, path
                counted += mix.counted_launches
                if mix.counted_launches:
                    names = launches["kernel_name"].to_pylist()
                    executed = tables.floats(launches, "inst_executed")
                    whole = sum(value for name, value in zip(names, executed, strict=True) if name == mix.kernel)
                    assert mix.total == pytest.approx(whole)
    assert counted >= 7


def test_the_mix_on_the_command_line_has_every_kind_in_json() -> None:
    found = json.loads(ran("hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--mix", "--format", "json").stdout)
    assert set(kinds()) < set(found["columns"])
    assert all(row["fp32"] is None for row in found["rows"])


@pytest.mark.parametrize("other", [["--units"], ["--diagnose"], ["--columns", "waves"], ["--by", "grid"]])
def test_the_mix_is_a_table_of_its_own(other: list[str]) -> None:
    done = ran("hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--mix", *other)
    assert done.exit_code == 2
