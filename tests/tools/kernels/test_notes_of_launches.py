"""What hotspots says of launches that lack something, and of rows that are Python locations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from ncu_launch.notes import NoteKind, kind_of
from ncu_parsers.derived.operators.python_locations import BY_FORWARD, BY_STACK, NO_LOCATION, Location, location_columns
from ncu_parsers.report_data.report import Launch, Metric
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import ASKED_METRICS, concatenated, with_metadata

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import EVERY_TYPE, WITHOUT_STACKS, RunSums, hotspots
from tests.support.launches import launch, metric, sass, table, tensor

FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
WHOLE: dict[str, Any] = {"ns": 10.0, "dram": 1.0}


def notes_of(made: pa.Table, group: str = "name") -> list[str]:
    return hotspots(made, ceilings_of(made), group=group).notes


def said(*launches: Launch, asked: list[str] | None = None) -> list[str]:
    """The notes on launches, but for those on ceilings."""
    made = table(*launches)
    made = made if asked is None else with_metadata(made, {ASKED_METRICS: asked})
    return [note for note in notes_of(made) if "ceiling" not in note and "--machine" not in note]


def counted() -> dict[str, Metric]:
    return sass(ffma=1) | tensor()


def test_only_rows_of_locations_say_how_many_kernels_they_are() -> None:
    made = table(launch("k", counted(), **WHOLE))
    assert [hotspots(made, ceilings_of(made), group=group).rows[0].kernels for group in ("name", "category")] == [
        None
    ] * 2


def test_failed_launches_are_counted_and_five_of_their_kernels_named() -> None:
    (note,) = said(launch("k", counted(), **WHOLE), *(launch(name, failed=True) for name in "fedcba"))
    assert note == "6 failed launches left out of every number: a, b, c, d, e"
    assert kind_of(note) == NoteKind.LOST
    assert said(launch("k", counted(), **WHOLE), launch("a", failed=True))[0].startswith("1 failed launch left out")


def test_a_report_of_single_launches_that_lacks_nothing_has_no_note() -> None:
    assert said(launch("k", counted(), **WHOLE), launch("j", counted(), **WHOLE)) == []


def test_averages_are_told_once_and_stand_for_as_many_launches_as_they_are_of() -> None:
    some = {**counted(), "dram__bytes.sum": metric(1.0, "byte")}
    averages, without_times = said(launch("k", some, invocations=3), launch("j", some, ns=1, invocations=2))
    assert averages == "the report holds averages over launches (a summary): totals are average x launches"
    assert without_times == "3 of 5 launches have no times; ask ncu for --metrics gpu__time_duration.sum"
    assert kind_of(without_times) == NoteKind.NO_TIME


def test_what_launches_lack_is_counted_with_the_metrics_to_ask_for() -> None:
    launches = [
        launch("k", counted(), **WHOLE), launch("j", ns=1), launch("i", ns=1), launch("h", counted(), ns=1),
        launch("failed", failed=True),
    ]  # fmt: skip
    flops, dram = said(*launches)[1:]
    assert flops.startswith("2 of 4 launches have no FLOP counts; ask ncu for --metrics smsp__")
    assert flops.endswith(" more, which ncu-bench machines --metrics flops,tensor --chip ga100 lists")
    assert dram == "3 of 4 launches have no DRAM bytes; ask ncu for --metrics dram__bytes.sum"
    assert [kind_of(note) for note in (flops, dram)] == [NoteKind.NOT_KNOWN] * 2
    (mixed,) = said(launch("a", capability="8.0", **WHOLE), launch("b", capability="9.0", **WHOLE))
    assert "machines --metrics flops,tensor lists" in mixed


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [(None, ["FLOP counts", "DRAM bytes"]), ([], []), ([FFMA], ["FLOP counts"]), (["dram__bytes.sum"], ["DRAM bytes"])],
)
def test_what_a_run_did_not_ask_for_is_not_missed(asked: list[str] | None, lacks: list[str]) -> None:
    notes = said(launch("k", ns=1), asked=asked)
    assert [note.partition(" launch has no ")[2].partition(";")[0] for note in notes] == lacks


def test_times_that_print_as_zero_are_counted() -> None:
    notes = said(launch("k", counted(), ns=0, dram=1), launch("j", counted(), **WHOLE), launch("i", ns=0, failed=True))
    assert notes[-1] == "1 launches print a time of 0: shorter than the report's digits can show"


def test_launches_that_lack_tensor_types_or_all_tensor_counts_are_told_apart() -> None:
    some = {"sm__ops_path_tensor_src_tf32_dst_fp32.sum": metric(0.0)}
    launches = [launch("k", sass(ffma=9), **WHOLE), launch("copy", sass(), **WHOLE)]
    launches += [launch("some", sass(ffma=9) | some, capability="9.0", **WHOLE)] * 2
    notes = [note for note in said(*launches) if note.startswith("FLOPs of")]
    assert notes == [
        "FLOPs of 2 launches are at least what is shown (not collected: some tensor types)",
        "FLOPs of 1 launch are at least what is shown (not collected: tensor)",
        "FLOPs of 1 launch are not known (not collected: tensor)" + EVERY_TYPE,
    ]


@pytest.mark.parametrize(
    ("basis", "is_missing"),
    [
        ("sass fp32; tensor ops (not every type)", False), ("sass fp32; tensor ops (not every type); not collected: fp64", True),
        ("sass fp32; not collected: tensor", True), (None, True),
    ],
)  # fmt: skip
def test_unknown_flops_are_asked_for_unless_a_note_on_tensor_types_tells_of_them(
    basis: str | None, is_missing: bool
) -> None:
    notes = said(launch("k", flops_basis=basis, **WHOLE))
    assert any("has no FLOP counts" in note for note in notes) == is_missing


def test_devices_are_those_of_the_launches_in_their_order() -> None:
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB")
    made = concatenated([table(launch("k", ns=1, attributes={"Device Name": name})) for name in names])
    assert hotspots(made, ceilings_of(made)).devices == list(names)


def test_a_row_has_the_report_that_all_of_its_launches_are_from_however_they_are_summed() -> None:
    first, second = table(launch("both", ns=1), launch("one", ns=1)), table(launch("both", ns=1))
    second = second.set_column(second.schema.get_field_index("report"), "report", pa.array(["other.csv"]))
    unknown = table(launch("one", ns=1), launch("none", ns=1))
    unknown = unknown.set_column(unknown.schema.get_field_index("report"), "report", arrays.dictionary([None] * 2))
    together, merged = RunSums("name"), RunSums("name")
    for part in (unknown, first, second):
        together.add(part, ceilings_of(part))
        each = RunSums("name")
        each.add(part, ceilings_of(part))
        merged.merge(each)
    for sums in (together, merged):
        assert {row.kernel: row.report for row in sums.kernels()} == {
            "both": None, "one": "report.csv", "none": None,
        }  # fmt: skip


def located(*launches: tuple[str, float | None, str | None, str], invocations: int | None = None) -> pa.Table:
    """Launches by kernel, ns, file and what their location is that of; the first is an average of `invocations`."""
    made = table(
        *(
            launch(name, ns=ns, invocations=invocations if not at else None)
            for at, (name, ns, *_) in enumerate(launches)
        )
    )
    places = [None if file is None else Location(file, 5, "f") for *_, file, _ in launches]
    for name, _, values in location_columns(places, [basis for *_, basis in launches]):
        made = made.append_column(name, values)
    return made


class TestRowsOfLocations:
    def test_count_their_kernels_and_name_the_hottest(self) -> None:
        made = located(
            ("a", 10.0, "net.py", BY_STACK), ("b", 30.0, "net.py", BY_STACK), ("a", 5.0, "net.py", BY_STACK),
            ("c", 55.0, None, BY_STACK),
        )  # fmt: skip
        rows = hotspots(made, ceilings_of(made), group="location").rows
        assert [(row.kernel, row.kernels, row.hottest_kernel) for row in rows] == [
            (NO_LOCATION, 1, "c"), ("net.py:5 (f)", 2, "b"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("launches", "note"),
        [
            ([("a", 30.0, "net.py", BY_STACK), ("a", 10.0, None, BY_STACK)], "75.0 % of the time has a Python location"),
            (
                [("a", 30.0, "net.py", BY_FORWARD), ("a", 30.0, "net.py", BY_STACK), ("a", 20.0, None, BY_STACK)],
                "75.0 % of the time has a Python location, of which 50.0 % is that of the forward operator",
            ),
            ([("a", 30.0, "net.py", BY_STACK)], "100.0 % of the time has a Python location"),
            ([("a", None, "net.py", BY_STACK)], None),
            ([("a", 30.0, None, BY_STACK)], WITHOUT_STACKS),
            ([("a", None, None, BY_STACK)], WITHOUT_STACKS),
        ],
    )  # fmt: skip
    def test_come_with_how_much_of_the_time_has_one(
        self, launches: list[tuple[str, float | None, str | None, str]], note: str | None
    ) -> None:
        notes = [one.partition(";")[0] for one in notes_of(located(*launches), "location") if "Python location" in one]
        assert notes == ([] if note is None else [note.partition(";")[0]])

    def test_weigh_averages_by_the_launches_they_are_of(self) -> None:
        made = located(("a", 10.0, "net.py", BY_STACK), ("b", 30.0, "net.py", BY_STACK), invocations=5)
        assert hotspots(made, ceilings_of(made), group="location").rows[0].hottest_kernel == "a"

    def test_say_nothing_of_a_run_without_launches(self) -> None:
        assert not any(
            "location" in one for one in notes_of(located(("a", 1.0, None, BY_STACK)).slice(0, 0), "location")
        )
