"""Gates on pairs of real reports: binary reports of two GPUs, and three CSVs of matrix products on one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from tests.support.nightly import by_day
from tests.support.ran import Ran, ran
from tests.support.reports import needs_shared_reports, shared_reports

pytestmark = [needs_shared_reports, pytest.mark.slow]

GEMMS = ("output_gemm", "output_sgemm", "share_tile")


def report(folder: str, fragment: str) -> str:
    (path,) = [path for path in shared_reports(folder) if fragment in path.name and "CTRPERM" not in path.name]
    return str(path)


PARSED: dict[str, Path] = {}
"""The launches of binary reports, each read once for all tests: NVIDIA's reader takes half a second and more."""


@pytest.fixture(autouse=True, scope="module")
def _parsed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    for fragment in ("silu_CUDA", "silu_triton"):
        PARSED[fragment] = tmp_path_factory.mktemp(fragment) / f"{fragment}.parquet"
        assert ran("parse", report("ncu_rep_full", fragment), "-o", str(PARSED[fragment])).exit_code == 0
    yield
    PARSED.clear()


def compared(folder: str, base: str, new: str, *options: str, gates: Sequence[str] = ()) -> Ran:
    limits = [word for gate in gates for word in ("--fail-on", gate)]
    runs = [PARSED.get(run) or report(folder, run) for run in (base, new)]
    return ran("compare", *map(str, runs), *limits, *options, "--wide")


@pytest.mark.parametrize("name", by_day(["silu_CUDA"], ["silu_CUDA", "silu_triton"]))
def test_a_binary_report_compared_with_its_launches_has_no_changes(name: str) -> None:
    gates = ["time>0%", "flops>0%", "dram_bytes>0%", "launches>0%", "kernel:silu:time>0%"]
    limits = [word for gate in gates for word in ("--fail-on", gate)]
    found = ran("compare", report("ncu_rep_full", name), str(PARSED[name]), *limits)
    assert (found.exit_code, found.stdout.count("passed"), "not the same work" in found.stdout) == (0, 5, False)


class TestTwoGPUs:
    def test_are_refused(self) -> None:
        found = compared("ncu_rep_full", "silu_CUDA", "silu_triton", gates=["kernel:silu:time>5%"])
        assert (found.exit_code, "H100" in found.stderr, "GH200" in found.stderr) == (4, True, True)

    @pytest.mark.parametrize(
        ("base", "new", "code"), [("silu_CUDA", "silu_triton", 0), ("silu_triton", "silu_CUDA", 3)]
    )
    def test_are_compared_with_anyway_and_trip_if_launches_take_longer(self, base: str, new: str, code: int) -> None:
        for gate in ("kernel:silu_kernel:time>5%", "time>5%"):
            assert compared("ncu_rep_full", base, new, "--anyway", gates=[gate]).exit_code == code

    def test_are_gated_per_launch_of_the_kernel_with_a_similar_name(self) -> None:
        gates = [f"kernel:silu_kernel:{measure}>5%" for measure in ("time", "flops", "launches")]
        gates += ["kernel:distribution_elementwise:time>5%", "launches>0%"]
        outcomes = []
        for base, new in (("silu_CUDA", "silu_triton"), ("silu_triton", "silu_CUDA")):
            found = compared("ncu_rep_full", base, new, "--anyway", "--format", "json", gates=gates)
            document = json.loads(found.stdout)
            outcomes.append([gate["outcome"] for gate in document["gates"]])
            assert found.exit_code == 3
            (row,) = (row for row in document["rows"] if row["kernel"].startswith("silu_kernel"))
            assert row["matched_by"] == "similar name (silu), only candidate"
        assert outcomes == [
            ["passed", "passed", "passed", "tripped", "passed"],
            ["tripped", "tripped", "tripped", "not evaluated", "tripped"],
        ]

    def test_are_reported_as_not_the_same_work(self) -> None:
        found = compared("ncu_rep_full", "silu_CUDA", "silu_triton", "--anyway")
        assert "not the same work: 3 -> 1 launches of silu_kernel_non_strided" in found.stdout


FASTER = {("output_gemm", "output_sgemm"), ("share_tile", "output_sgemm"), ("output_gemm", "share_tile")}
"""Base and new run, of which the new matrix product is faster: 36.98 s, 33.48 s and 36.57 s."""


@pytest.mark.parametrize(("base", "new"), list(product(GEMMS, GEMMS)))
class TestPairsOfMatrixProducts:
    def test_time_trips_if_the_new_product_takes_longer(self, base: str, new: str) -> None:
        slower = base != new and (base, new) not in FASTER
        found = compared("ncu_csv", base, new, gates=["time>0.5%", "kernel:gemm_v:time>0.5%"])
        assert found.exit_code == (3 if slower else 0)
        assert found.stdout.count("tripped") == (2 if slower else 0)

    def test_flops_and_launches_are_equal_since_each_does_2mnk(self, base: str, new: str) -> None:
        found = compared("ncu_csv", base, new, gates=["flops>0%", "launches>0%", "kernel:gemm_v:flops>0%"])
        assert (found.exit_code, found.stdout.count("passed")) == (0, 3)

    def test_bytes_trip_only_compared_with_the_product_that_moves_a_fifth(self, base: str, new: str) -> None:
        more = base == "output_sgemm" != new
        assert compared("ncu_csv", base, new, gates=["dram_bytes>5%"]).exit_code == (3 if more else 0)

    def test_filling_the_matrices_takes_the_same_time_within_its_noise(self, base: str, new: str) -> None:
        found = compared("ncu_csv", base, new, gates=["kernel:randomInit:time>0%"])
        told = "same" if base == new else "no change shown" if "+0.06" in found.stdout else ""
        assert (found.exit_code, told in found.stdout) == (0, True)

    def test_the_product_is_matched_in_every_version(self, base: str, new: str) -> None:
        found = compared("ncu_csv", base, new)
        renamed = (base == "output_sgemm") != (new == "output_sgemm")
        assert ("similar name (gemm), grid, block, only candidate" in found.stdout) == renamed
        assert not {"gone", "new", "not the same work"} & set(found.stdout.split("   "))


def test_two_dissimilar_kernels_of_two_reports_are_not_paired() -> None:
    found = compared("ncu_csv", "ncu_saxpy", "ncu_transpose_naive")
    assert ("gone" in found.stdout, "not the same work" in found.stdout) == (True, True)
    assert compared("ncu_csv", "ncu_saxpy", "ncu_transpose_naive", gates=["time>5%"]).exit_code == 2


@pytest.mark.parametrize(("new", "code"), [("gemm_tiled", 3), ("gemm_register_blocked", 0), ("gemm_vectorized", 0)])
def test_every_rewritten_matrix_product_is_matched_whatever_its_grid(new: str, code: int) -> None:
    for gate in ("kernel:gemm_naive:time>5%", "time>5%"):
        found = compared("ncu_csv", "ncu_gemm_naive", f"ncu_{new}", gates=[gate])
        assert (found.exit_code, "similar name (gemm)" in found.stdout) == (code, True)
    assert compared("ncu_csv", "ncu_gemm_naive", f"ncu_{new}", gates=["kernel:gemm:dram_bytes>0%"]).exit_code == 0


PAGES = ["raw.base", "raw.fp", "raw.instances", "details.csv", "details-all", "summary-per"]


@pytest.mark.parametrize("page", by_day(["raw.base", "details.csv", "summary-per"], PAGES))
def test_pages_of_one_report_are_the_same_however_many_digits_they_print(page: str) -> None:
    gates = ["time>0%", "launches>0%", "dram_bytes>0.1%"]
    for base, new in (("raw.csv", page), (page, "raw.csv")):
        files = f"317662.ncu2022.3.{base}", f"317662.ncu2022.3.{new}"
        found = compared("ncu_csv", *files, "--format", "json", gates=gates)
        assert found.exit_code == 0
        assert {row["verdict"] for row in json.loads(found.stdout)["rows"]} == {"same"}
