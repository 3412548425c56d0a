"""Rows of operators and their times: what stays of bad rows, intervals, bounds, and machines without measured times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError, WrongUsage

import ncu_tools
from ncu_tools.ceilings.machine_files import Machine, find_machine
from ncu_tools.model.expected_time.expected_times import ExpectedTimes, expected_times
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learnt_times import (
    FAMILIES,
    KIN,
    MEASURED,
    PHYSICS,
    Learnt,
    LearntEntry,
    read,
    shipped,
    written,
)
from ncu_tools.model.expected_time.operator_rows import operator_rows, read_csv

SIZE = st.integers(1, 60_000)
MACHINES = ("b200", "h100-sxm", "a100-sxm4-40gb", "rtx-4090", "t4", "v100-sxm2-16gb")
GOOD = {"op": "gemm", "dtype": "bf16", "m": "64", "n": "64", "k": "64"}


def times_of(machine: str = "b200", learnt: Learnt | None = None, **columns: Any) -> ExpectedTimes:
    count = max(len(column) for column in columns.values())
    rows = {name: [value] * count for name, value in GOOD.items()} | columns
    return expected_times(operator_rows(rows), find_machine(machine), learnt or shipped())


class TestARow:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"op": "conv"}, "op conv is none of gemm, attention_context, attention_generation"),
            ({"dtype": "bf17"}, "dtype bf17 is none of fp64, fp32"),
            ({"dtype": ""}, "dtype (empty) is none of"),
            ({"m": ""}, "m is missing"),
            ({"n": "12x"}, "n is '12x', which is no number"),
            ({"k": "-4"}, "k is -4, which is no whole number from 1 on"),
            ({"k": "0"}, "k is 0, which is no whole number from 1 on"),
            ({"m": "2.5"}, "m is 2.5, which is no whole number from 1 on"),
            ({"m": "inf"}, "m is inf, which is no whole number"),
        ],
    )  # fmt: skip
    def test_that_is_bad_keeps_its_place_and_its_reason_and_spoils_no_other(
        self, change: dict[str, str], reason: str
    ) -> None:
        bad = GOOD | change
        columns: dict[str, Any] = {name: [GOOD[name], bad[name], GOOD[name]] for name in GOOD}
        found = times_of(**columns)
        assert found.failed[1].startswith(reason)
        assert np.isnan(found.expected_us[1])
        assert found.failed[0] is found.failed[2] is None
        assert found.expected_us[0] == found.expected_us[2] > 0

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"kv_heads": ["5"]}, "heads is 32, which is no multiple of kv_heads, 5"),
            ({"kv_heads": ["64"]}, "heads is 32, which is no multiple of kv_heads, 64"),
            ({"causal": ["7"]}, "causal is 7, which is neither 0 nor 1"),
            ({"writes": ["2"]}, "writes is 2, which is neither 0 nor 1"),
        ],
    )
    def test_of_impossible_attention_has_a_reason(self, change: dict[str, list[str]], reason: str) -> None:
        attention = {"op": ["attention_context"], "batch": ["4"], "heads": ["32"], "head_dim": ["128"], "query": ["64"]}
        rows = operator_rows({"dtype": ["bf16"], **attention, **change})
        assert rows.failed.tolist() == [reason]

    @pytest.mark.parametrize(("name", "same"), [("bfloat16", "bf16"), ("Half", "fp16"), ("torch.float32", "fp32")])
    def test_may_say_its_type_as_pytorch_does(self, name: str, same: str) -> None:
        found = times_of(dtype=[name, same])
        assert found.expected_us[0] == found.expected_us[1]

    def test_of_a_type_that_the_machine_lacks_says_so(self) -> None:
        assert times_of("t4", dtype=["bf16"]).failed[0] == "no peak for bf16 is known of t4"


class TestTimes:
    @given(st.lists(st.tuples(SIZE, SIZE, SIZE), min_size=1, max_size=4), st.sampled_from(MACHINES))
    def test_lie_in_their_interval_and_at_best_only_measured_gpus_beat_the_roof(
        self, sizes: list[tuple[int, int, int]], machine: str
    ) -> None:
        m, n, k = (list(column) for column in zip(*sizes, strict=True))
        found = times_of(machine, dtype=["fp16"], m=m, n=n, k=k) if len(m) == 1 else times_of(
            machine, dtype=["fp16"] * len(m), m=m, n=n, k=k
        )  # fmt: skip
        assert (found.low_us <= found.expected_us).all()
        assert (found.expected_us <= found.high_us).all()
        if found.basis[0] != MEASURED:
            assert (found.expected_us >= found.at_best_us * (1 - 1e-6)).all()
            assert (found.low_us >= found.at_best_us * (1 - 1e-6)).all()

    @given(SIZE, SIZE, SIZE)
    def test_of_eight_times_the_work_are_not_less(self, m: int, n: int, k: int) -> None:
        found = times_of(m=[m, 2 * m], n=[n, 2 * n], k=[k, 2 * k])
        assert found.expected_us[1] > found.expected_us[0] * 0.9

    def test_of_many_rows_are_those_of_each_alone(self) -> None:
        sizes = [1, 17, 500, 4096]
        together = times_of(m=sizes, dtype=["bf16", "fp8", "bf16", "nvfp4"])
        alone = [
            times_of(m=[m], dtype=[dtype]).expected_us[0]
            for m, dtype in zip(sizes, ["bf16", "fp8", "bf16", "nvfp4"], strict=True)
        ]
        assert together.expected_us == pytest.approx(alone)

    @pytest.mark.parametrize("machine", ["v100-sxm2-16gb", "t4", "a100-sxm4-80gb"])
    def test_of_a_skinny_product_on_cuda_cores_are_hardly_longer_than_of_its_bytes(self, machine: str) -> None:
        found = times_of(machine, dtype=["fp32"], m=["4096"], n=["32"], k=["4096"])
        assert found.expected_us[0] < 2.2 * found.at_best_us[0]

    def test_of_products_whose_activations_come_in_their_narrow_type_are_shorter(self) -> None:
        found = times_of(dtype=["fp8"] * 2, quantised=["", "1"], m=["15360"] * 2, n=["4096"] * 2, k=["3072"] * 2)
        turned, bare = found.expected_us
        measured = 112.6  # us of torch._scaled_mm on a B200, the best of a sweep
        assert measured < bare * 1.15 < turned

    def test_of_attention_that_writes_no_cache_are_shorter(self) -> None:
        writes, bare = times_of(
            op=["attention_context"] * 2, batch=["32"] * 2, heads=["16"] * 2, head_dim=["128"] * 2, query=["1024"] * 2,
            writes=["", "0"],
        ).expected_us  # fmt: skip
        assert bare < 0.95 * writes

    def test_say_what_bounds_an_operator(self) -> None:
        found = times_of(m=[8, 1, 16384], n=[32, 16384, 16384], k=[32, 16384, 16384])
        assert found.bound.tolist() == ["launch", "DRAM", "tensor BF16"]


def basis_of(machine: Machine, shares: dict[str, float]) -> Any:
    """The logarithms of the numbers of products on a machine, from those of others with all numbers at a share."""
    count = len(shipped().entries[0].logs)
    known = [
        LearntEntry("gemm", name, "bf16", 9, np.full(count, np.log(one)), None, ()) for name, one in shares.items()
    ]
    return Learnt(tuple(known)).basis("gemm", machine, "bf16").logs


class TestTheBasis:
    def test_is_measured_where_the_gpu_and_type_were(self) -> None:
        assert times_of("h200", m=[64]).basis[0] == MEASURED

    def test_of_fp16_is_that_of_bf16_which_has_its_rate_and_bytes(self) -> None:
        assert times_of(dtype=["fp16"]).basis[0] == MEASURED

    def test_is_the_family_of_a_gpu_without_times_and_its_interval_is_wider(self) -> None:
        own, kin = times_of("h100-sxm", m=[4096]), times_of("h100-pcie", m=[4096])
        assert kin.basis[0] == "its siblings h100-sxm, h200"
        widths = [(one.high_us[0] - one.low_us[0]) / one.expected_us[0] for one in (own, kin)]
        assert widths[1] > widths[0]

    def test_is_all_other_families_of_a_gpu_without_kin(self) -> None:
        assert times_of("v100-sxm2-16gb", dtype=["fp16"]).basis[0] == "GPUs of other families"

    @pytest.mark.parametrize(
        ("chip", "factor", "share"),
        [("AD104", 1, 0.4), ("AD104", 8, 0.8), ("AD104", 64, 0.9), ("AD102", 1.4, 0.4), ("AD102", 8, 0.8)],
    )
    def test_reaches_more_of_its_peak_the_more_power_a_board_has_for_a_flop(
        self, chip: str, factor: float, share: float
    ) -> None:
        l40s = find_machine("l40s")
        other = replace(l40s, id="other", chip=chip, power_w=factor * (l40s.power_w or 0))
        assert np.exp(basis_of(other, {"l40s": 0.4})[0]) == pytest.approx(share)

    def test_reaches_more_of_its_bandwidth_without_check_bits_in_memory(self) -> None:
        other = replace(find_machine("l40s"), id="other", ecc=0.0)
        assert np.exp(basis_of(other, {"l40s": 0.4})[1]) == pytest.approx(0.4 * 16 / 15)

    def test_leans_on_families_with_the_same_tensor_instructions(self) -> None:
        known = {"b200": 0.8, "a100-sxm4-80gb": 0.2}
        boards = [replace(find_machine("h100-sxm"), id="other", compute_capability=of) for of in ("9.0", "7.0")]
        hopper, volta = (np.exp(basis_of(board, known)[0]) for board in boards)
        assert volta < hopper - 0.1

    def test_loads_a_byte_and_computes_an_exponential_in_as_long_for_every_type(self) -> None:
        machine = find_machine("h100-sxm")
        others = replace(shipped(), entries=tuple(one for one in shipped().entries if one.dtype == "bf16"))
        for dtype, unit in (("fp32", "fp32"), ("int8", "tensor_int8")):
            share = machine.rates[unit].value / machine.rates["tensor_bf16"].value
            for kind, name in (("gemm", "load"), ("gemm", "step"), ("attention_context", "softmax")):
                place = list(KINDS[kind].physics.numbers).index(name)
                own, other = (np.exp(others.basis(kind, machine, one).logs[place]) for one in ("bf16", dtype))
                assert other == pytest.approx(own * share)

    @pytest.mark.parametrize(("capability", "share"), [("8.9", 1.0), ("10.3", 0.5)])
    def test_computes_as_many_exponentials_in_an_sm_as_others_however_fast_its_products_are(
        self, capability: str, share: float
    ) -> None:
        l40s = find_machine("l40s")
        rates = {**l40s.rates, "tensor_bf16": l40s.rates["tensor_bf16"]._replace(value=8 * 362e12)}
        other = replace(l40s, id="other", chip="other", compute_capability=capability, rates=rates)
        known = Learnt(tuple(one for one in shipped().entries if one.machine == "l40s"))
        place = list(KINDS["attention_context"].physics.numbers).index("softmax")
        own, there = (np.exp(known.basis("attention_context", one, "bf16").logs[place]) for one in (l40s, other))
        assert there == pytest.approx(8 * own * share, rel=0.01)

    def test_has_a_narrow_interval_only_of_its_own_chip_or_where_siblings_were_judged(self) -> None:
        found = {
            name: times_of(
                name, op=["attention_context"], batch=["4"], heads=["32"], head_dim=["64"], query=["1024"]
            )
            for name in ("rtx-4090", "rtx-3090")
        }  # fmt: skip
        assert {one.basis[0] for one in found.values()} == {"its siblings l40s"}
        widths = {name: (one.high_us[0] - one.low_us[0]) / one.expected_us[0] for name, one in found.items()}
        assert widths["rtx-3090"] > 1.5 * widths["rtx-4090"]

    def test_of_a_board_at_its_power_limit_may_be_met_by_a_cool_one(self) -> None:
        measured = 5049  # us, DeepBench's T4 for 4096 x 7000 x 4096 in FP16, at twice the rate that lasts
        found = times_of("t4", dtype=["fp16"], m=["4096"], n=["7000"], k=["4096"])
        assert found.low_us[0] < measured < 0.7 * found.expected_us[0]

    @pytest.mark.parametrize("dtype", ["int8_wo", "int4_wo"])
    def test_of_weights_alone_is_known_where_tensor_cores_have_no_bf16(self, dtype: str) -> None:
        assert times_of("t4", dtype=[dtype]).failed[0] is None

    def test_of_a_machine_without_known_sms_are_those_of_its_roofs_at_best(self) -> None:
        found = times_of("mi300x", m=["4096"], n=["4096"], k=["4096"])
        peak = find_machine("mi300x").rates["tensor_bf16"].value
        assert found.at_best_us[0] == pytest.approx(2 * 4096**3 / peak * 1e6)
        assert np.isnan(found.expected_us[0])
        assert found.failed[0] == "the number of SMs of mi300x is not known"

    def test_without_tensor_cores_for_a_type_says_so(self) -> None:
        found = times_of("p100-pcie-16gb", dtype=["fp16"])
        assert found.failed[0] == "p100-pcie-16gb has no tensor cores for fp16, and times without them are not known"

    def test_of_a_type_that_nobody_measured_is_physics_alone(self) -> None:
        assert times_of(dtype=["tf32"]).basis[0] == "physics alone, no times of tf32 are known"

    def test_knows_how_far_times_spread_for_every_kind_that_ships(self) -> None:
        assert {basis for kind, basis, _ in shipped().unknown if kind == "gemm"} == {KIN, FAMILIES, PHYSICS}


class TestAFileOfLearntTimes:
    def test_says_after_reading_what_it_said_before_writing(self) -> None:
        again = read(written(shipped()), "again")
        for one, same in zip(shipped().entries, again.entries, strict=True):
            assert (one.kind, one.machine, one.dtype, one.points) == (same.kind, same.machine, same.dtype, same.points)
            assert same.logs == pytest.approx(one.logs, abs=1e-3)
            assert one.corrections == pytest.approx(same.corrections)
            assert one.spread == same.spread
        assert again.unknown == shipped().unknown

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("", "of version 1"),
            ("version = 2", "of version 1"),
            ("version = 1\n[[entry]]\nkind = 'gemm'", "no whole file"),
            ("version = [", "no whole file"),
            ("version = 1\n[[grids.gemm]]\nm = [1, 2]", "no whole file"),
        ],
    )
    def test_that_is_damaged_is_refused_whole(self, text: str, what: str) -> None:
        with pytest.raises(WrongUsage, match=what):
            read(text, "mine.toml")

    def test_cut_anywhere_is_refused_or_has_whole_entries(self) -> None:
        text = written(Learnt(shipped().entries[:2], source="test"))
        for end in range(0, len(text), 97):
            try:
                found = read(text[:end], "cut")
            except WrongUsage:
                continue
            assert all(len(one.logs) == 15 for one in found.entries)

    def test_of_the_user_replaces_the_shipped_one(self) -> None:
        one = shipped().entries[0]
        mine = Learnt(
            (LearntEntry("gemm", one.machine, one.dtype, 20, one.logs + np.log(2), None, ((0.0, -0.1, 0.1),)),)
        )
        both = shipped().and_also(mine)
        assert len(both.entries) == len(shipped().entries)
        assert both.basis("gemm", find_machine(one.machine), one.dtype).logs == pytest.approx(one.logs + np.log(2))


class TestATableOfOperators:
    def test_is_read_with_the_cells_as_they_are(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("op,dtype,m,n,k,layer\ngemm,bf16,1,2,3,a\ngemm,bf16,4\n", "utf-8")
        assert read_csv(tmp_path / "a.csv") == {
            "op": ["gemm", "gemm"], "dtype": ["bf16", "bf16"], "m": ["1", "4"], "n": ["2", ""], "k": ["3", ""],
            "layer": ["a", ""],
        }  # fmt: skip

    @pytest.mark.parametrize("text", ["", "m,n\n1,2\n", "op,op\ngemm,gemm\n"])
    def test_without_one_column_op_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.csv").write_text(text, "utf-8")
        with pytest.raises(WrongUsage, match="no table of operators"):
            read_csv(tmp_path / "a.csv")

    @pytest.mark.parametrize("text", ["op;dtype;m;n;k\ngemm;bf16;1;2;3\n", "Op\tDType\tM\tN\tK\ngemm\tbf16\t1\t2\t3\n"])
    def test_may_have_semicolons_or_tabs_and_names_in_any_case(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "a.csv").write_text(text, "utf-8")
        assert read_csv(tmp_path / "a.csv") == {
            "op": ["gemm"], "dtype": ["bf16"], "m": ["1"], "n": ["2"], "k": ["3"],
        }  # fmt: skip

    def test_with_a_comma_in_a_number_has_no_time_for_it(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("op,dtype,m,n,k\ngemm,bf16,4,096,4096,4096\ngemm,bf16,1,2,3\n", "utf-8")
        bad, good = operator_rows(read_csv(tmp_path / "a.csv")).failed
        assert bad == "the row has more cells than the table has columns (4096)"
        assert good is None

    def test_that_is_no_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_bytes(b"op\xff\xfe\x00")
        with pytest.raises(NcuBenchError, match="cannot be read as a CSV file"):
            read_csv(tmp_path / "a.csv")


class TestFromPython:
    def test_every_row_stands_once_for_each_machine(self) -> None:
        found = ncu_tools.expected_times([GOOD, GOOD | {"m": ""}], machine=["b200", "l40s"])
        assert found["machine"].tolist() == ["b200", "b200", "l40s", "l40s"]
        assert found["failed"].tolist()[1] == "m is missing"
        assert found["expected_us"].notna().tolist() == [True, False, True, False]

    def test_columns_rows_tables_and_files_give_the_same(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("op,dtype,m,n,k\ngemm,bf16,64,64,64\n", "utf-8")
        columns = {name: [value] for name, value in GOOD.items()}
        first, *others = (
            ncu_tools.expected_times(given, machine="b200")["expected_us"].tolist()
            for given in (columns, [GOOD], tmp_path / "a.csv", ncu_tools.expected_times(columns, machine="b200"))
        )
        assert others == [first] * 3

    def test_columns_of_unequal_lengths_are_refused_by_name(self) -> None:
        with pytest.raises(WrongUsage, match="as many values as op, 2: dtype 1, k 3 have not"):
            ncu_tools.expected_times(
                {"op": ["gemm"] * 2, "dtype": ["bf16"], "m": [1, 2], "n": [1, 2], "k": [1, 2, 3]}, machine="b200"
            )

    def test_needs_a_machine(self) -> None:
        with pytest.raises(WrongUsage, match="need a machine"):
            ncu_tools.expected_times([GOOD], machine=[])
