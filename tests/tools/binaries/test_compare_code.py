"""Two builds beside each other: kernels matched, same code, diffs, gates, waivers, JUnit and SARIF."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import WrongUsage
from ncu_parsers.binaries.code_files import FoundKernel
from ncu_parsers.binaries.kernel_resources import KernelResources, Spills

from ncu_tools.binaries.code_gates import Waiver, held, parse_code_gate, read_waivers
from ncu_tools.binaries.compare_code import CodeChange, CodePair, compared_code, matched, summary_of
from ncu_tools.binaries.kernel_listing import listing_of
from ncu_tools.compare.gate import NOT_EVALUATED, PASSED, TRIPPED
from tests.support.kept_sass import BINARIES, use_kept_sass, use_no_disassembler
from tests.support.ran import ran

OLD, NEW = str(BINARIES / "changed.sm_90.cubin"), str(BINARIES / "kernels.sm_90.cubin")
TODAY = date(2026, 11, 27)


@pytest.fixture(autouse=True)
def _with_kept_sass(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kept_sass(monkeypatch)


def kernel(name: str, path: str = "a.cubin", **resources: object) -> FoundKernel:
    known = KernelResources(name, "sm_90", 32, spills=Spills(0, 0), shared_bytes=0, code_digest=name + path)
    return FoundKernel(replace(known, **resources), path, 0)  # type: ignore[arg-type]


def pair(registers: tuple[int, int] = (32, 32), spills: tuple[int, int] | None = (0, 0), name: str = "k") -> CodePair:
    base, new = (
        kernel(name, registers=registers[side], spills=None if spills is None else Spills(spills[side], 0))
        for side in (0, 1)
    )
    return CodePair(new, base, new, CodeChange.CHANGED, ({"fp32": 100}, {"fp32": 103}))


class TestMatching:
    def test_pairs_every_kernel_once(self) -> None:
        base = [kernel("a"), kernel("b"), kernel("gone")]
        new = [kernel("b"), kernel("new"), kernel("a")]
        names = [tuple(one and one.resources.name for one in two) for two in matched(base, new)]
        assert names == [("a", "a"), ("b", "b"), ("gone", None), (None, "new")]

    def test_pairs_kernels_of_equal_code_first_among_equal_names(self) -> None:
        base = [kernel("k", "x/k.cubin", code_digest="1"), kernel("k", "y/k.cubin", code_digest="2")]
        new = [kernel("k", "z/k.cubin", code_digest="2"), kernel("k", "w/k.cubin", code_digest="1")]
        assert [(one and one.path, other and other.path) for one, other in matched(base, new)] == [
            ("x/k.cubin", "w/k.cubin"), ("y/k.cubin", "z/k.cubin"),
        ]  # fmt: skip

    def test_a_kernel_that_takes_other_arguments_is_matched_by_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        use_no_disassembler(monkeypatch)
        (found,) = compared_code([kernel("_Z1kPf")], [kernel("_Z1kPd")])
        assert found.signature_changed
        assert len(list(compared_code([kernel("_Z1kPf"), kernel("_Z1kPi")], [kernel("_Z1kPd")]))) == 3

    def test_hashes_of_unnamed_namespaces_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        use_no_disassembler(monkeypatch)
        spaces = (
            "50_GLOBAL__N__5ffcc681_11_NanCheck_cu_a18c1e9e_36832",
            "46_GLOBAL__N__01234567_11_NanCheck_cu_89abcdef_9",
        )
        base, new = ([kernel(f"_ZN4c10d{one}11checkForNaNI{kind}EEvPT_m") for kind in "df"] for one in spaces)
        found = list(compared_code(base, new))
        assert [one.either.resources.name[-8] for one in found] == ["d", "f"]
        assert not any(one.signature_changed for one in found)

    @given(st.lists(st.sampled_from("abcd"), max_size=8), st.lists(st.sampled_from("abcd"), max_size=8))
    def test_takes_every_kernel_of_both_builds(self, base: list[str], new: list[str]) -> None:
        found = matched([kernel(one) for one in base], [kernel(one) for one in new])
        assert sorted(one.resources.name for one, _ in found if one) == sorted(base)
        assert sorted(one.resources.name for _, one in found if one) == sorted(new)


class TestCode:
    def test_of_equal_bytes_is_the_same(self) -> None:
        done = ran("compare", NEW, NEW, "--every", "--format", "json")
        answer = json.loads(done.stdout)
        assert {row["code_change"] for row in answer["rows"]} == {"same code"}
        assert answer["changes"] == []
        assert ran("compare", NEW, NEW).stdout.strip() == "kernels.sm_90.cubin: 12 kernels, 12 same code"

    def test_that_differs_is_listed_with_resources_and_kinds_of_instructions(self) -> None:
        rows = {row["kernel"]: row for row in json.loads(ran("compare", OLD, NEW, "--format", "json").stdout)["rows"]}
        assert {name for name, row in rows.items() if row["code_change"] == "changed"} == {"crowded", "quotient"}
        assert (rows["crowded"]["base_spills"], rows["crowded"]["new_spills"]) == (0, 520)
        assert "integer +48" in rows["quotient"]["kinds_words"]

    def test_is_the_same_if_only_registers_and_labels_differ(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ncu_tools.binaries import compare_code

        def renumbered(found: FoundKernel) -> object:
            listing = listing_of(found)
            assert listing is not None
            if "changed" not in found.path:
                return listing
            texts = [re.sub(r"\bR(\d)\b", lambda match: f"R{9 - int(match[1])}", text) for text in listing.texts]
            return replace(listing, texts=texts)

        monkeypatch.setattr(compare_code, "listing_of", renumbered)
        one = FoundKernel(KernelResources("copy", "sm_90", code_digest="1"), OLD, 0)
        other = FoundKernel(KernelResources("copy", "sm_90", code_digest="2"), NEW, 0)
        (found,) = compared_code([one], [other])
        assert found.change is CodeChange.SAME

    def test_of_more_kernels_than_are_disassembled_differs_in_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from ncu_tools.binaries import compare_code

        monkeypatch.setattr(compare_code, "MOST_DISASSEMBLED", 1)
        done = ran("compare", OLD, NEW, "--fail-on", "code")
        assert done.exit_code == 3
        assert "1 changed, 1 of other bytes" in done.stdout
        assert "1 kernel whose bytes differ was not disassembled" in done.stderr

    def test_the_gravest_change_is_said_first(self) -> None:
        assert "first: crowded: spills 0 -> 520 bytes" in ran("compare", OLD, NEW).stdout

    def test_of_one_kernel_is_shown_as_a_diff(self) -> None:
        done = ran("compare", OLD, NEW, "--kernel", "quotient", "--format", "markdown")
        assert "```diff\n" in done.stdout
        assert re.search(r"^\+ 0x\w{4}  .*FCHK", done.stdout, re.MULTILINE)

    def test_without_a_disassembler_bytes_differ_and_the_gate_on_code_cannot_tell(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_no_disassembler(monkeypatch)
        done = ran("compare", OLD, NEW, "--fail-on", "code")
        assert done.exit_code == 4
        assert "bytes differ" in done.stdout
        assert "pip install triton" in done.stderr
        assert ran("compare", OLD, NEW, "--fail-on", "spills>0").exit_code == 3

    def test_of_folders_is_compared_too(self, tmp_path: Path) -> None:
        for name, file in (("old", OLD), ("new", NEW)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "k.cubin").write_bytes(Path(file).read_bytes())
        done = ran("compare", str(tmp_path / "old"), str(tmp_path / "new"))
        assert "2 changed" in done.stdout


class TestGates:
    @pytest.mark.parametrize(
        ("text", "outcome"),
        [
            ("registers>0", TRIPPED), ("registers>8", PASSED), ("registers>20%", TRIPPED), ("registers>25%", PASSED),
            ("spills>0", TRIPPED), ("spills>48", PASSED), ("spills>500%", TRIPPED), ("occupancy<0", TRIPPED),
            ("instructions>2%", TRIPPED), ("instructions>3%", PASSED), ("instructions>3", PASSED), ("code", TRIPPED),
            ("kernel:other:code", NOT_EVALUATED), ("kernel:^k$:code", TRIPPED), ("registers<0", PASSED),
        ],
    )  # fmt: skip
    def test_hold_the_change_to_the_limit(self, text: str, outcome: str) -> None:
        found = held(parse_code_gate(text), [pair((32, 40), (0, 48))], [], TODAY)
        assert found.outcome.outcome == outcome

    def test_on_occupancy_are_in_points(self) -> None:
        found = [
            held(parse_code_gate(f"occupancy<{limit}"), [pair((64, 128))], [], TODAY) for limit in ("0", "-30", "-20%")
        ]
        assert [one.outcome.outcome for one in found] == [TRIPPED, PASSED, TRIPPED]

    def test_say_that_the_old_block_fits_no_longer_and_not_that_occupancy_fell(self) -> None:
        base, new = kernel("k", max_threads=(1024, 1, 1), registers=64), kernel("k", registers=80)
        one = CodePair(new, base, new, CodeChange.CHANGED)
        assert one.values("occupancy") == (0.5, None)
        found = held(parse_code_gate("occupancy<0"), [one], [], TODAY)
        reason = "no block of 1,024 threads fits the new code"
        assert (found.outcome.outcome, found.outcome.reason) == (
            NOT_EVALUATED,
            f"k (sm_90): occupancy not known: {reason}",
        )
        assert summary_of([one]).changes[0] == f"k: {reason}"

    @pytest.mark.parametrize(
        ("old", "new", "occupancies"),
        [
            ({"max_threads": (256, 1, 1), "registers": 128}, {"max_threads": (1024, 1, 1), "registers": 64}, (0.25, 0.5)),
            ({"max_threads": (1024, 1, 1), "registers": 64}, {"max_threads": (96, 1, 1), "registers": 64}, (0.46875, 0.46875)),
            ({"threads": 64, "registers": 32}, {"threads": 1024, "registers": 32}, (1.0, 1.0)),
            ({"threads": 96, "registers": 32}, {"max_threads": (1024, 1, 1), "registers": 32}, (0.984375, 0.984375)),
        ],
    )  # fmt: skip
    def test_compare_occupancy_for_a_block_that_both_allow(
        self, old: dict[str, object], new: dict[str, object], occupancies: tuple[float, float]
    ) -> None:
        base, other = kernel("k", "a.cubin", **old), kernel("k", "a.cubin", **new)
        assert CodePair(other, base, other, CodeChange.CHANGED).values("occupancy") == occupancies

    def test_say_where_a_measure_is_unknown(self) -> None:
        found = held(parse_code_gate("spills>0"), [pair(spills=None)], [], TODAY)
        assert (found.outcome.outcome, found.outcome.reason) == (NOT_EVALUATED, "k (sm_90): spills not known")

    def test_on_code_trip_for_new_and_gone_kernels(self) -> None:
        new = kernel("n")
        found = held(parse_code_gate("code"), [CodePair(new, None, new, CodeChange.NEW)], [], TODAY)
        assert found.outcome.outcome == TRIPPED

    @pytest.mark.parametrize(
        "text", ["", "registers", "code>1", "time>5%", "registers=1", "kernel:(:code", "registers>x"]
    )
    def test_that_are_none_are_refused(self, text: str) -> None:
        with pytest.raises(WrongUsage):
            parse_code_gate(text)

    def test_end_the_command_with_their_exit_code_and_junit(self, tmp_path: Path) -> None:
        junit = tmp_path / "gates.xml"
        done = ran("compare", OLD, NEW, "--fail-on", "spills>0", "--fail-on", "registers>2", "--junit", str(junit))
        assert done.exit_code == 3
        assert 'tests="2" failures="1"' in junit.read_text("utf-8")
        assert ran("compare", NEW, NEW, "--fail-on", "code").exit_code == 0

    def test_that_tripped_are_written_as_sarif_at_the_line_of_the_kernel(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GITHUB_WORKSPACE", str(BINARIES))
        path = tmp_path / "code.sarif"
        assert ran("compare", OLD, NEW, "--fail-on", "spills>0", "--sarif", str(path)).exit_code == 3
        (found,) = json.loads(path.read_text("utf-8"))["runs"][0]["results"]
        assert (found["ruleId"], found["message"]["text"]) == ("spills>0", "crowded (sm_90): spills 0 -> 520 bytes")
        place = found["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "kernels.cu"
        assert place["region"]["startLine"] > 20


class TestWaivers:
    WAIVER = Waiver(re.compile("k"), "registers", date(2026, 12, 1), "a second stage")

    def test_let_a_kernel_pass_until_their_day_and_say_why(self) -> None:
        gate = parse_code_gate("registers>0")
        found = held(gate, [pair((32, 40))], [self.WAIVER], TODAY)
        assert (found.outcome.outcome, found.outcome.reason) == (
            PASSED, "0 kernels; k waived until 2026-12-01: a second stage",
        )  # fmt: skip
        assert held(gate, [pair((32, 40))], [self.WAIVER], date(2026, 12, 1)).outcome.outcome == PASSED
        assert held(gate, [pair((32, 40))], [self.WAIVER], date(2026, 12, 2)).outcome.outcome == TRIPPED

    def test_are_of_one_gate_and_kernel(self) -> None:
        assert held(parse_code_gate("spills>0"), [pair(spills=(0, 4))], [self.WAIVER], TODAY).outcome.outcome == TRIPPED
        named = [pair((32, 40), name="other")]
        assert held(parse_code_gate("registers>0"), named, [self.WAIVER], TODAY).outcome.outcome == TRIPPED

    @pytest.mark.parametrize(
        "text",
        [
            "", "[[waiver]]", "not toml [", '[[waiver]]\nkernel="k"\ngate="code"\nreason="x"\nuntil="soon"',
            '[[waiver]]\nkernel="("\ngate="code"\nreason="x"\nuntil=2027-01-01', "waiver = 3", "waiver = [3]",
            '[[waiver]]\nkernel="k"\ngate="code"\nuntil=2027-01-01',
        ],
    )  # fmt: skip
    def test_that_do_not_say_why_or_until_when_are_refused(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "waivers.toml"
        path.write_text(text, "utf-8")
        with pytest.raises(WrongUsage):
            read_waivers(path)

    def test_are_read_by_the_command_which_names_idle_and_ended_ones(self, tmp_path: Path) -> None:
        path = tmp_path / "waivers.toml"
        path.write_text(
            '[[waiver]]\nkernel = "crowded"\ngate = "spills>0"\nuntil = 2999-01-01\nreason = "known"\n'
            '[[waiver]]\nkernel = "copy"\ngate = "spills>0"\nuntil = 2999-01-01\nreason = "known"\n'
            '[[waiver]]\nkernel = "copy"\ngate = "code"\nuntil = 2001-01-01\nreason = "known"\n',
            "utf-8",
        )
        done = ran("compare", OLD, NEW, "--fail-on", "spills>0", "--waivers", str(path))
        assert done.exit_code == 0
        assert "crowded waived until 2999-01-01: known" in done.stdout
        assert "is not needed" in done.stderr
        assert "ended on 2001-01-01" in done.stderr


def test_files_of_gates_without_gates_are_refused(tmp_path: Path) -> None:
    assert ran("compare", OLD, NEW, "--sarif", str(tmp_path / "x.sarif")).exit_code == 2
    assert ran("compare", OLD, NEW, "--fail-on", "spills>0", "--sarif", NEW).exit_code == 2


@pytest.mark.parametrize("output", ["text", "json", "csv", "markdown"])
def test_every_format_names_the_changed_kernels(output: str) -> None:
    done = ran("compare", OLD, NEW, "--format", output)
    assert done.exit_code == 0
    assert "crowded" in done.stdout
