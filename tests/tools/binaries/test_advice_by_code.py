"""Levers that code alone decides: each on a kernel that it helps, and on none that it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from ncu_parsers.binaries.code_files import CodeReading, kernels_in

from ncu_tools.binaries.advice_by_code import CodeFinding, advice_by_code
from ncu_tools.binaries.kernel_listing import listing_of
from ncu_tools.binaries.static_facts import facts_of
from tests.support.kept_sass import BINARIES, use_kept_sass, use_no_disassembler
from tests.support.ran import ran

CUBIN = str(BINARIES / "kernels.sm_90.cubin")


@pytest.fixture(scope="module")
def findings() -> Iterator[dict[str, dict[str, CodeFinding]]]:
    with pytest.MonkeyPatch.context() as patch:
        use_kept_sass(patch)
        found = {}
        for kernel in kernels_in(BINARIES / "kernels.sm_90.cubin", CodeReading()):
            listing = listing_of(kernel)
            assert listing is not None
            found[kernel.resources.name] = {one.lever: one for one in advice_by_code(listing, facts_of(listing))}
        yield found


@pytest.mark.parametrize(
    ("lever", "kernels"),
    [
        ("spills", {"crowded"}), ("local-memory", {"table"}), ("tensor-cores", {"dot_rows"}),
        ("slow-division", {"quotient", "remainder_of"}), ("float-constants", {"scaled"}), ("widen-accesses", {"dot_rows"}),
        ("index-arithmetic", {"dot_rows", "table", "tile_product"}),
    ],
)  # fmt: skip
def test_a_lever_is_named_for_the_kernels_that_it_helps_alone(
    findings: dict[str, dict[str, CodeFinding]], lever: str, kernels: set[str]
) -> None:
    assert {name for name, found in findings.items() if lever in found} == kernels


def test_counts_are_of_the_whole_code_and_of_its_loops(findings: dict[str, dict[str, CodeFinding]]) -> None:
    spills = findings["crowded"]["spills"]
    assert (spills.count, spills.in_loops, spills.unit, spills.place) == (520, 288, "byte", "kernels.cu:35")
    assert "520 bytes spilled, 288 of them in loops; the compiler could take 64 registers" in spills.says
    division = findings["quotient"]["slow-division"]
    assert (division.count, division.in_loops) == (1, 0)


def test_every_lever_says_what_to_change(findings: dict[str, dict[str, CodeFinding]]) -> None:
    for found in findings.values():
        for one in found.values():
            assert one.title
            assert one.remedy.endswith(".")


def test_the_command_puts_loops_first_and_says_that_times_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kept_sass(monkeypatch)
    done = ran("advise", CUBIN)
    assert done.exit_code == 0
    assert "by code alone: how often something stands there, not how long it takes" in done.stderr
    assert done.stdout.index("crowded") < done.stdout.index("quotient")
    answer = json.loads(ran("advise", CUBIN, "--kernel", "scaled", "--format", "json").stdout)
    assert [row["lever"] for row in answer["rows"]] == ["float-constants"]


def test_without_a_disassembler_the_command_names_spilled_bytes_and_what_the_rest_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_no_disassembler(monkeypatch)
    done = ran("advise", CUBIN, "--format", "json")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert [(row["kernel"], row["lever"], row["in_loops"], row["place"]) for row in answer["rows"]] == [
        ("crowded", "spills", None, None)
    ]
    assert any("pip install triton" in note for note in answer["notes"])


@pytest.mark.parametrize("output", ["text", "json", "csv", "markdown"])
def test_every_format_has_the_findings(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    use_kept_sass(monkeypatch)
    done = ran("advise", CUBIN, "--format", output)
    assert done.exit_code == 0
    assert "crowded" in done.stdout
