"""What the counts of a joined launch are: means, what makes them ambiguous, and what the notes say of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays

from ncu_tools.kernels.matching.join import ABOUT_CEILINGS, Share, join
from tests.support.launches import launch, metric
from tests.tools.kernels.matching.test_join import (
    BLOCK,
    GRID,
    counted,
    counts,
    of_gpu,
    only,
    rows,
    timed,
    timeline,
    times,
)


def of_sources(table: pa.Table, *sources: str) -> pa.Table:
    """A table whose rows come from these tools."""
    place = table.schema.get_field_index("source")
    return table.set_column(place, table.schema.field(place), arrays.dictionary(list(sources)))


def with_measures(one: Launch, **measures: float) -> Launch:
    one.measures |= measures
    return one


def with_metrics(one: Launch, **metrics: Any) -> Launch:
    one.metrics |= {name: metric(value) for name, value in metrics.items()}
    return one


class TestCountsOfOneSignature:
    def test_are_the_mean_by_how_many_launches_each_row_stands_for(self) -> None:
        """3 launches of 1000 bytes and 1 of 1008 have 4008 / 4 bytes each."""
        both = counts(counted(dram=1000, invocations=3), counted(dram=1008))
        assert only(join(both, timeline(timed())))["dram_bytes"] == 1002

    @pytest.mark.parametrize(("least", "outcome", "dram"), [(990, "matched", 995), (989, "ambiguous", None)])
    def test_agree_up_to_a_hundredth_of_the_larger(self, least: float, outcome: str, dram: float | None) -> None:
        row = only(join(counts(counted(dram=least), counted(dram=1000)), timeline(timed())))
        assert (row["counts_match"], row["dram_bytes"]) == (outcome, dram)

    def test_of_nothing_agree(self) -> None:
        row = only(join(counts(counted(flops=0, dram=0), counted(flops=0, dram=0)), timeline(timed())))
        assert (row["counts_match"], row["flops_fp32"], row["dram_bytes"]) == ("matched", 0, 0)

    def test_may_be_known_of_some_of_its_launches(self) -> None:
        both = counts(counted(dram=1000), counted())
        both = both.set_column(
            both.schema.get_field_index("dram_bytes"), "dram_bytes", pa.array([1000.0, None], pa.float64())
        )
        assert only(join(both, timeline(timed())))["dram_bytes"] == 1000

    def test_agree_whatever_their_times_and_clocks_under_ncu(self) -> None:
        slow, fast = (
            with_measures(counted(), duration_ns=ns, sm_clock_hz=clock, peak_dram_bytes=peak)
            for ns, clock, peak in ((900.0, 1e9, 1e12), (100.0, 2e9, 4e12))
        )
        row = only(join(counts(slow, fast), timeline(timed(ns=10))))
        assert (row["counts_match"], row["duration_ns"]) == ("matched", 10)
        assert (row["sm_clock_hz"], row["peak_dram_bytes"]) == (1.5e9, 2.5e12)

    def test_agree_where_another_metric_differs_which_is_left_empty(self) -> None:
        both = (with_metrics(counted(), launch__registers_per_thread=count) for count in (32.0, 64.0))
        row = only(join(counts(*both), timeline(timed())))
        assert (row["counts_match"], row["flops"], row["launch__registers_per_thread"]) == ("matched", 200, None)

    def test_come_from_launches_under_ncu_alone(self) -> None:
        mixed = of_sources(counts(counted(), counted(flops=600)), "ncu", "nsys")
        assert only(join(mixed, timeline(timed())))["flops"] == 200

    def test_are_given_to_launches_of_the_timeline_alone(self) -> None:
        mixed = of_sources(timeline(timed(ns=1), timed(ns=2), timed(ns=4)), "nsys", "ncu", "kineto")
        joined = join(counts(counted()), mixed)
        assert [(row["duration_ns"], row["source"]) for row in rows(joined)] == [(1, "ncu+nsys"), (4, "ncu+kineto")]


class TestALaunchThatIsUnmatched:
    def test_has_nothing_of_another(self) -> None:
        known = with_metrics(of_gpu(counted(), "NVIDIA A100", "8.0"), some__word="text", some__number=5.0)
        matched, unmatched = rows(join(counts(known), timeline(timed(), timed("other"))))
        assert (matched["device_name"], matched["some__word"], matched["some__number"]) == ("NVIDIA A100", "text", 5)
        for name in ("device_name", "some__word", "some__number", "flops", "flops_basis", "counts_key"):
            assert unmatched[name] is None, name
        assert (unmatched["source"], unmatched["counts_match"]) == ("nsys", "unmatched")

    def test_keeps_the_source_of_its_own_timeline(self) -> None:
        mixed = of_sources(timeline(timed(), timed("other"), timed("other")), "nsys", "kineto", "nsys")
        assert [row["source"] for row in rows(join(counts(counted()), mixed))] == ["ncu+nsys", "kineto", "nsys"]

    def test_is_all_there_is_where_no_signature_is_shared(self) -> None:
        joined = join(counts(counted("one")), timeline(timed("other")))
        assert (only(joined)["counts_match"], only(joined)["flops"]) == ("unmatched", None)


class TestOtherColumns:
    def test_of_texts_are_kept_where_all_launches_of_a_signature_say_the_same(self) -> None:
        both = [with_metrics(counted(), same__text="a", other__text=word) for word in ("b", "c")]
        row = only(join(counts(*both), timeline(timed())))
        assert (row["same__text"], row["other__text"]) == ("a", None)

    def test_of_texts_are_those_of_the_launches_that_have_them(self) -> None:
        some = counts(with_metrics(counted(), some__text="a"), counted())
        assert only(join(some, timeline(timed())))["some__text"] == "a"

    @pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
    def test_of_texts_are_kept_however_they_are_stored(self, kind: pa.DataType) -> None:
        table = counts(with_metrics(counted(), some__text="a"))
        place = table.schema.get_field_index("some__text")
        table = table.set_column(place, pa.field("some__text", kind), table.column(place).cast(kind))
        assert only(join(table, timeline(timed())))["some__text"] == "a"

    def test_of_whole_numbers_are_kept_too(self) -> None:
        table = counts(with_metrics(counted(), launch__registers_per_thread=32.0))
        place = table.schema.get_field_index("launch__registers_per_thread")
        table = table.set_column(place, "launch__registers_per_thread", table.column(place).cast(pa.int64()))
        assert only(join(table, timeline(timed())))["launch__registers_per_thread"] == 32

    def test_that_are_no_metrics_or_list_instances_stay_behind(self) -> None:
        one = with_metrics(counted(), **{"some__metric (instances)": "1; 2", "Process Name": "python"})
        assert not {"some__metric (instances)", "Process Name"} & only(join(counts(one), timeline(timed()))).keys()

    def test_that_the_timeline_has_are_those_of_the_timeline(self) -> None:
        ours, theirs = with_metrics(counted(), some__number=1.0), with_metrics(timed(), some__number=2.0)
        joined = join(counts(ours), timeline(theirs))
        assert joined.table.column_names.count("some__number") == 1
        assert only(joined)["some__number"] == 2

    def test_of_the_device_are_those_of_the_timeline_where_it_knows_them(self) -> None:
        ours, theirs = of_gpu(counted(), "NVIDIA A100", "8.0"), of_gpu(timed(), "NVIDIA H100", None)
        row = only(join(counts(ours), timeline(theirs), other_gpus=True))
        assert (row["device_name"], row["compute_capability"]) == ("NVIDIA H100", "8.0")

    def test_of_the_basis_name_every_one_of_a_signature(self) -> None:
        one, other = counted(), counted()
        other.metrics |= {"sm__ops_path_tensor_src_fp64.sum": metric(0.0)}
        bases = {row["flops_basis"] for one_of in (one, other) for row in counts(one_of).to_pylist()}
        assert len(bases) == 2
        assert only(join(counts(one, other), timeline(timed())))["flops_basis"] == " / ".join(sorted(bases))

    def test_of_the_basis_are_empty_where_no_flops_were_counted(self) -> None:
        bytes_alone = launch("kernel", dram=1000, grid=GRID, block=BLOCK)
        row = only(join(counts(bytes_alone), timeline(timed())))
        assert (row["counts_match"], row["dram_bytes"], row["flops_basis"]) == ("matched", 1000, None)


class TestGPUs:
    def test_that_only_the_timeline_knows_are_no_difference(self) -> None:
        ours, theirs = of_gpu(counted(), None, None), of_gpu(timed(), "NVIDIA A100", "8.0")
        assert only(join(counts(ours), timeline(theirs)))["flops"] == 200

    def test_that_some_launches_do_not_say_are_no_difference(self) -> None:
        ours = counts(of_gpu(counted(), "NVIDIA A100", "8.0"), of_gpu(counted("other"), None, None))
        assert only(join(ours, timeline(of_gpu(timed(), "NVIDIA A100", "8.0"))))["flops"] == 200


NCU, NSYS, OPERATORS = "ncu", "nsys", "operators"


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ([NSYS], [NCU], "COUNTS is a timeline, and TIMELINE a report of ncu"),
        ([NSYS, NCU], [NCU], "TIMELINE holds no times"),
        ([NSYS], [NCU, NSYS], "COUNTS holds no counters"),
        ([NSYS], [OPERATORS], "COUNTS holds no counters"),
        ([OPERATORS], [NCU], "COUNTS holds no counters"),
    ],
)
def test_what_is_missing_is_said_of_the_side_that_lacks_it(ours: list[str], theirs: list[str], words: str) -> None:
    one = of_sources(counts(*(counted() for _ in ours)), *ours)
    other = of_sources(timeline(*(timed() for _ in theirs)), *theirs)
    with pytest.raises(NcuBenchError, match=words):
        join(one, other)


class TestNotes:
    def test_are_absent_but_for_ceilings_where_both_sides_match(self) -> None:
        assert join(counts(counted()), timeline(timed())).notes == [ABOUT_CEILINGS]

    def test_name_the_column_that_differs_most_and_by_how_much_of_the_larger(self) -> None:
        """FLOPs 200 and 800 differ by three quarters, bytes 1000 and 3000 by two thirds."""
        both = counts(counted(flops=200, dram=1000), counted(flops=800, dram=3000))
        assert join(both, timeline(timed()), tolerance=0.025).notes == [
            "1 launch ambiguous: counted launches of one signature differ by more than 2.5 %, flops_fp32 by up to 75 %; "
            "differing values are left empty; a larger --tolerance takes their mean",
            ABOUT_CEILINGS,
        ]

    def test_count_launches_that_were_matched_by_order(self) -> None:
        both = counts(counted(dram=1000), counted(dram=3000))
        assert join(both, timeline(timed(), timed())).notes == [
            "2 launches matched one to one by order: the counted launches of their signatures differ, and both sides have "
            "equally many",
            ABOUT_CEILINGS,
        ]

    def test_count_launches_that_shared_a_looser_key_alone(self) -> None:
        ours = counts(counted("add"), counted("gemm"))
        theirs = timeline(timed("void add<int>(int*)", invocations=4), timed("gemm", grid=None, block=None))
        assert join(ours, theirs).notes[:-1] == [
            "4 launches joined by short name, grid, block only",
            "1 launch joined by name only",
        ]

    def test_count_kernels_without_a_time_as_often_as_they_ran_and_no_copies(self) -> None:
        copy = timed("[CUDA memcpy]", operation="memcpy", measures={})
        found = join(counts(counted()), timeline(timed(invocations=3, measures={}), timed(), copy)).notes
        assert found[0] == "3 launches of the timeline without a time: they are in no share"

    def test_count_launches_under_ncu_that_are_not_in_the_timeline_and_their_kernels(self) -> None:
        ours = counts(counted(), counted("b"), counted("b"), counted("c"))
        assert join(ours, timeline(timed())).notes[0] == "3 launches under ncu, of 2 kernels, not in the timeline"


class TestShares:
    def test_are_unknown_where_no_launch_has_a_time(self) -> None:
        joined = join(counts(counted()), timeline(timed(measures={})))
        assert joined.outcomes == [Share("matched", None, 1, 0.0, None)]

    def test_of_kernels_without_counts_go_by_time_and_then_by_name(self) -> None:
        theirs = timeline(timed(ns=10), timed("z", 5), timed("a", 5), timed("b", 20))
        found = join(counts(counted()), theirs).lacking
        assert found == [
            Share("unmatched", "b", 1, 20.0, 0.5),
            Share("unmatched", "a", 1, 5.0, 0.125),
            Share("unmatched", "z", 1, 5.0, 0.125),
        ]

    def test_of_ambiguous_kernels_are_among_them(self) -> None:
        joined = join(counts(counted(dram=1000), counted(dram=3000)), timeline(timed(ns=3, invocations=2)))
        assert joined.lacking == [Share("ambiguous", "kernel", 2, 6.0, 1.0)]
        assert times(joined) == {"ambiguous": 6}
