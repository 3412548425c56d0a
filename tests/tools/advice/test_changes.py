"""What was pulled between two versions of a kernel, what came, and the history that is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError

from ncu_tools.advice.advise import KernelAdvice, advice_on
from ncu_tools.advice.history import HEAD, LoggedChange, append
from ncu_tools.advice.pulled_levers import KernelChangeAdvice, change_of, paired
from ncu_tools.advice.situation.kernel_situation import Situation
from tests.conftest import SAMPLES, SHARED
from tests.support.called_here import called_here
from tests.support.reports import needs_shared_reports
from tests.tools.advice.test_levers import code, measured

HISTORIES = SHARED / "histories" / "reports"
CONFLICTS = str(SAMPLES / "h100" / "conflicts.ncu-rep")
RULES = str(SAMPLES / "d02-long-rules.csv")
ENTRY = LoggedChange("2026-11-27 08:00", "old", "new", "kernel | two", "coalesce", "said", "brought", "next")


def changed(before: dict[str, float], after: dict[str, float], ratio: float = 2.0) -> KernelChangeAdvice:
    old, new = measured(busy={"l2": 0.9}), measured(busy={"l2": 0.9}, time_ns=1e6 / ratio)
    old.numbers |= before
    new.numbers |= after
    return change_of(advice_on(old), advice_on(new))


def test_a_lever_is_seen_by_what_it_changed_and_held_against_what_was_said() -> None:
    change = changed(
        {"theoretical_sectors": 800.0, "ideal_sectors": 100.0},
        {"theoretical_sectors": 100.0, "ideal_sectors": 100.0},
        5.0,
    )
    (pulled,) = change.pulled
    assert (pulled.lever, pulled.before, pulled.after) == ("coalesce", 8.0, 1.0)
    assert change.brought == pytest.approx(0.8)
    assert change.is_inside_prediction(pulled)


def test_a_sign_that_changed_the_wrong_way_is_harm_and_a_loss_is_not_as_said() -> None:
    change = changed(
        {"theoretical_sectors": 100.0, "ideal_sectors": 100.0, "registers": 64.0},
        {"theoretical_sectors": 400.0, "ideal_sectors": 100.0, "registers": 32.0},
        0.5,
    )
    assert [one.lever for one in change.harmed] == ["coalesce"]
    assert [one.lever for one in change.pulled] == ["occupancy"]
    assert change.brought == pytest.approx(-1.0)
    assert not change.is_inside_prediction(change.pulled[0])


FP64 = {"dadd": 0.0, "dmul": 0.0, "dfma": 1e6, "fadd": 0.0, "fmul": 0.0, "ffma": 1e3}
FP32 = {"dadd": 0.0, "dmul": 0.0, "dfma": 0.0, "fadd": 0.0, "fmul": 0.0, "ffma": 1e6}


def test_a_narrower_type_is_seen_by_the_operations_of_each_and_not_taken_for_contracted_ones() -> None:
    (pulled,) = changed(FP64, FP32).pulled
    assert (pulled.lever, pulled.unit, pulled.after) == ("lower-precision", "byte", 4.0)
    assert pulled.before == pytest.approx(8.0, abs=0.01)
    assert [one.lever for one in changed(FP32, FP64).harmed] == ["lower-precision"]


def test_a_narrower_type_is_seen_by_opcodes_and_by_the_pipe_that_computes() -> None:
    def pulled(before: Situation, after: Situation) -> list[str]:
        versions = [KernelAdvice(one.kernel, [], situation=one) for one in (before, after)]
        return [one.lever for one in change_of(*versions).pulled]

    single, half = (Situation(measured(), code(LDG=10, **{name: 10})) for name in ("FFMA", "HFMA2_MMA"))
    assert "lower-precision" in pulled(single, half)
    by_pipe = [Situation(measured(busy=busy)) for busy in ({"fp64": 0.5, "fma": 0.1}, {"fp64": 0.0, "fma": 0.3})]
    assert pulled(by_pipe[0], by_pipe[1]) == ["lower-precision"]
    assert pulled(by_pipe[1], Situation(measured())) == []


def test_contracted_operations_in_fp64_are_seen_by_fewer_of_them() -> None:
    rates = ("dadd_rate", "dmul_rate", "dfma_rate", "sm_clock_hz")
    before, after = (
        dict(zip(rates, (10.0, 10.0, 0.0, 1e9), strict=True)),
        dict(zip(rates, (0.0, 0.0, 20.0, 1e9), strict=True)),
    )
    old, new = measured(busy={"fp64": 0.9, "fma": 0.1}), measured(busy={"fp64": 0.9, "fma": 0.1}, time_ns=5e5)
    old.numbers |= before
    new.numbers |= after
    assert [one.lever for one in change_of(advice_on(old), advice_on(new)).pulled] == ["contract-and-fast-math"]


def test_nothing_is_seen_where_nothing_changed() -> None:
    change = changed({"registers": 64.0}, {"registers": 64.0}, 1.01)
    assert change.pulled == change.harmed == []


def test_kernels_are_paired_by_name_and_the_nearest_grid() -> None:
    old = [advice_on(measured("a", blocks=128.0)), advice_on(measured("b"))]
    new = [advice_on(measured("a", blocks=4096.0)), advice_on(measured("a", blocks=128.0)), advice_on(measured("c"))]
    found = paired(old, new, (str, str))
    assert [(one.old.kernel.name, one.new.kernel.get("blocks")) for one in found] == [("a", 128.0)]


def test_the_only_kernels_of_two_runs_are_a_pair_whatever_their_names() -> None:
    assert len(paired([advice_on(measured("v1"))], [advice_on(measured("v2"))], (str, str))) == 1


@pytest.mark.slow
@needs_shared_reports
def test_the_change_of_a_public_history_is_told_with_what_got_worse(tmp_path: Path) -> None:
    folder = HISTORIES / "armleth__cuda-mlp-inference"
    reports = [str(folder / name) for name in ("b4d31e__report.ncu-rep.gz", "e4819d__report_v2.ncu-rep.gz")]
    out = called_here("advise", reports[0], "--against", reports[1], cwd=tmp_path).out
    assert "28.3 % longer" in out
    assert "pulled  more-in-flight" in out
    assert "worse   coalesce" in out


def test_a_change_is_shown_and_logged_and_json_has_a_row(tmp_path: Path) -> None:
    words = ("advise", RULES, "--against", RULES, "--log", "history.md")
    for _ in range(2):
        found = called_here(*words, "--format", "json", cwd=tmp_path)
        assert found.code == 0, found.err
    assert '"brought_share": 0.0' in found.out
    lines = (tmp_path / "history.md").read_text("utf-8").splitlines()
    assert lines[: len(HEAD)] == list(HEAD)
    assert len(lines) == len(HEAD) + 6


def test_runs_without_a_common_kernel_are_refused_with_their_names_and_the_pair_to_type(tmp_path: Path) -> None:
    other = str(SAMPLES / "h100" / "conflicts-details-all.csv")
    found = called_here("advise", RULES, "--against", other, "--log", "history.md", cwd=tmp_path)
    assert found.code == 1
    assert "sgemm_tiled" in found.err
    pair = found.err.partition("--pair ")[2].split()[0]
    assert called_here("advise", RULES, "--against", other, "--pair", pair, cwd=tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--log", "x.md"), "--against"),
        (("--against", CONFLICTS, "--pair", "a=b"), "no kernel of the base is called a"),
    ],
)
def test_options_of_a_change_without_one_and_unknown_pairs_are_refused(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    found = called_here("advise", CONFLICTS, *words, cwd=tmp_path)
    assert found.code == 2
    assert says in found.err


class TestHistory:
    def test_a_damaged_line_is_kept_and_named(self, tmp_path: Path) -> None:
        path = tmp_path / "history.md"
        assert append(path, [ENTRY]) == []
        path.write_text(path.read_text("utf-8") + "| half a li\n", "utf-8")
        (note,) = append(path, [ENTRY])
        assert "line 6" in note
        assert "half a li" in note
        assert path.read_text("utf-8").splitlines()[5] == "| half a li"
        assert path.read_text("utf-8").count("coalesce") == 2

    def test_bars_in_names_do_not_part_cells(self, tmp_path: Path) -> None:
        append(tmp_path / "history.md", [ENTRY])
        assert append(tmp_path / "history.md", [ENTRY]) == []

    @pytest.mark.parametrize(
        ("content", "says"),
        [(b"# Notes\n", "no history"), (b"<!-- ncu-bench advise --log, version 9 -->\n", "version 9"),
         (HEAD[0][:20].encode(), "no history"), (f"{HEAD[0]}\n".encode(), "its head is missing"),
         ("\n".join([*HEAD, ENTRY.line[:-9]]).encode(), "its end is missing"), (b"\xff\x98", "cannot be read")],
        ids=["another file", "a newer version", "half of its first line", "no head of the table", "half of a row", "bytes"],
    )  # fmt: skip
    def test_another_file_and_a_damaged_one_are_refused_and_stay(
        self, tmp_path: Path, content: bytes, says: str
    ) -> None:
        path = tmp_path / "notes.md"
        path.write_bytes(content)
        with pytest.raises(NcuBenchError, match=says):
            append(path, [ENTRY])
        assert path.read_bytes() == content

    def test_a_missing_folder_is_an_error_and_is_not_made(self, tmp_path: Path) -> None:
        found = called_here("advise", RULES, "--against", RULES, "--log", "no such/history.md", cwd=tmp_path)
        assert found.code == 1
        assert "mkdir -p 'no such'" in found.err
        assert list(tmp_path.iterdir()) == []

    def test_a_name_is_neither_html_nor_several_cells_nor_lines(self) -> None:
        line = ENTRY._replace(kernel="<b>|\n\x0bk").line
        assert r"| \<b>\| k |" in line


@pytest.mark.slow
@needs_shared_reports
def test_compare_says_what_got_worse_in_a_slower_kernel_what_is_next_as_advise_does_and_the_command_whole(
    tmp_path: Path,
) -> None:
    folder = HISTORIES / "armleth__cuda-mlp-inference"
    base, new = (str(folder / name) for name in ("b4d31e__report.ncu-rep.gz", "e4819d__report_v2.ncu-rep.gz"))
    out = called_here("compare", base, new, cwd=tmp_path).out
    said = "worse on matrix_addition2D: sectors for each that is needed 1 -> 2; 28.3 % longer. Next: "
    assert said in " ".join(out.split())
    assert f"  ncu-bench advise {base} --against {new}" in out.splitlines()
    advice = called_here("advise", base, "--against", new, cwd=tmp_path).out
    assert f"{said}{' '.join(advice.partition('  next')[2].split())}. More:" in " ".join(out.split())


@pytest.mark.slow
@needs_shared_reports
def test_compare_names_the_lever_whose_predicted_saving_is_nearest_to_the_measured_one(
    tmp_path: Path,
) -> None:
    folder = HISTORIES / "Swagatam1812__hpca-gpu-memory-profiling"
    reports = [str(folder / name) for name in ("3fce2f__naive.ncu-rep.gz", "1fb295__variant2.ncu-rep.gz")]
    out = " ".join(called_here("compare", *reports, cwd=tmp_path).out.split())
    assert "lever pulled on kernel_conv2d_baseline -> kernel_conv2d_variant2: coalesce (said to save" in out
    assert "likely 72 %: as said); 87.7 % saved." in out


def test_compare_of_a_report_with_itself_names_no_lever(tmp_path: Path) -> None:
    assert "lever pulled" not in called_here("compare", CONFLICTS, CONFLICTS, cwd=tmp_path).out
