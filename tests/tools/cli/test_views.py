"""Views: further tables behind a verb, which words choose them, and what their help and errors say."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from ncu_launch.errors import WrongUsage

from ncu_tools.cli import COMMANDS, cli
from ncu_tools.cli.views import VIEWS, Typed, Verb, are_runs
from tests.conftest import ROOT, SAMPLES
from tests.support.ran import ran

SWEEP = ROOT / "tests" / "released" / "schema-1" / "sweep"
RAW = str(SAMPLES / "d01-wide-raw.csv")


def parsed(*words: str) -> click.Context:
    """The context of a line that would be run: its command is that of the view that is meant."""
    verb = cli.get_command(click.Context(cli), words[0])
    assert verb is not None
    return verb.make_context(words[0], list(words[1:]), parent=click.Context(cli, info_name="ncu-bench"))


def refusal(*words: str) -> str:
    """The error of a line that is wrong."""
    done = ran(*words)
    assert done.exit_code == 2
    return " ".join(done.stderr.split())


@pytest.mark.parametrize(("line", "name"), [
    ("hotspots r.csv", "hotspots"), ("hotspots r.csv --by layer", "layers"), ("hotspots --by=layer r.csv", "layers"),
    ("hotspots r.csv --by grid", "hotspots"), ("hotspots -- --by layer", "hotspots"),
    ("kernel r.csv", "kernel"), ("kernel r.csv gemm --part samples", "samples"), ("kernel r.csv --part limits", "kernel"),
    ("timeline t.sqlite", "timeline"), ("timeline t.sqlite --part samples --by nvtx", "samples"),
    ("timeline 0.json 1.json", "skew"), ("timeline run --by rank", "skew"), ("timeline t.sqlite --part gaps", "timeline"),
    ("compare a b", "compare"), ("compare a --with formulas", "expected"),
    ("parse a.csv -o b.parquet", "parse"), ("parse a.csv --times t.sqlite -o b.parquet", "join"),
    ("report a.csv", "report"), ("report a.csv -o page.html", "report"), ("report a.csv --format digest", "digest"),
    ("report a.csv -o a.md", "digest"), ("report a.csv -oa.json", "digest"), ("report a.csv --format json", "digest"),
    ("report a.csv -o t.speedscope.json", "export"), ("report a.csv -o k.csv --format json", "export"),
    ("report a.csv -o t.json --as perfetto", "export"), ("report a.csv --output=t.perfetto.json", "export"),
    ("machines", "machines"), ("machines t4", "machines"), ("machines --metrics", "metrics"),
    ("machines --all-chips", "metrics"), ("machines --metrics flops,dram --chip gh100", "metrics"),
    ("mcp --root .", "mcp"), ("mcp --schema", "schema"), ("mcp --schema layers", "schema"),
    ("bench resnet18", "bench"), ("bench sweep/", "scaling"), ("bench sweep/ -x n", "series"),
    ("bench hf:gpt2 -o sweep --batch-size 1,8", "bench"), ("bench kernels.py:softmax --arg n=4", "bench"),
    ("bench s3://bucket/sweep", "scaling"), ("bench a/bench.parquet", "scaling"),
])  # fmt: skip
def test_words_choose_the_table(line: str, name: str) -> None:
    assert parsed(*line.split()).command.name == name


def test_the_folder_of_a_run_of_several_ranks_is_compared_and_its_recording_shown_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "ranks" / "0").mkdir(parents=True)
    assert parsed("timeline", str(tmp_path)).command.name == "skew"
    assert parsed("timeline", str(tmp_path), "--part", "steps").command.name == "timeline"


class TestAPathIsARunAndANameAModel:
    def test_by_what_is_there_and_by_how_it_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("sweep").mkdir()
        assert are_runs(["sweep"])
        assert are_runs(["./missing", "s3://bucket/sweep"])
        assert not are_runs(["resnet18", "hf:org/name", "kernels.py:f", "pkg.mod:f", "lib/kernels.py:f"])

    def test_a_name_that_is_both_is_refused_with_what_to_type(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("gemms").mkdir()
        with pytest.raises(WrongUsage, match=r"For the run type ./gemms; to measure the model"):
            are_runs(["gemms"])
        assert are_runs(["./gemms"])

    def test_both_in_one_command_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("sweep").mkdir()
        with pytest.raises(WrongUsage, match="sweep is a run that was measured, and resnet18 a model to measure"):
            are_runs(["sweep", "resnet18"])

    def test_the_values_of_options_are_neither(self) -> None:
        assert parsed("bench", str(SWEEP), "--title", "resnet18", "-o", "a.svg").command.name == "scaling"
        assert parsed("bench", "resnet18", "-o", str(SWEEP)).command.name == "bench"


class TestHelp:
    @pytest.mark.parametrize("verb", VIEWS)
    def test_of_a_verb_names_its_views_with_the_options_that_they_have_more(self, verb: str) -> None:
        shown = " ".join(ran(verb, "--help").stdout.split())
        for view in VIEWS[verb]:
            assert f"ncu-bench {verb} {view.typed}:" in shown

    def test_of_a_view_is_behind_the_words_that_choose_it(self) -> None:
        shown = ran("hotspots", "--by", "layer", "--help").stdout
        assert shown.startswith("Usage: ncu-bench hotspots --by layer [OPTIONS] RUN\n")
        assert "--forward-backward" in shown
        assert "--units" not in shown

    @pytest.mark.parametrize("view", [one for views in VIEWS.values() for one in views], ids=lambda one: one.typed)
    def test_of_each_view_has_an_example_with_its_words(self, view: object) -> None:
        verb = next(name for name, views in VIEWS.items() if view in views)
        found = view.command.help or ""  # type: ignore[attr-defined]
        assert "Example:" in found
        assert f"ncu-bench {verb} " in found


class TestAnOptionOfAnotherTable:
    def test_is_answered_with_the_words_that_choose_its_table(self) -> None:
        said = refusal("hotspots", RAW, "--depth", "2")
        assert re.search("No such option:? '?--depth'?. It goes with: hotspots --by layer", said)  # click 8.2 and later

    def test_is_refused_by_a_view_with_its_own_words(self) -> None:
        assert "It does not go with --by layer." in refusal("hotspots", RAW, "--by", "layer", "--units")

    def test_is_refused_by_a_view_that_has_it_under_an_old_name_alone(self) -> None:
        assert "It does not go with --mix." in refusal("hotspots", RAW, "--mix", "--by", "category")

    def test_that_chooses_a_table_is_refused_by_the_view_of_another_one(self) -> None:
        assert "It does not go with --mix." in refusal("hotspots", RAW, "--mix", "--rules")


def test_more_runs_than_a_view_takes_are_answered_with_its_usage() -> None:
    """The verb takes many, so its name alone does not tell what was wrong."""
    usage = "The usage is: ncu-bench hotspots --by layer [OPTIONS] RUN."
    assert usage in " ".join(refusal("hotspots", RAW, RAW, "--by", "layer").split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--depth", "2"], "--depth is of modules. Points are kernels here. Add --points modules."),
        (["--by", "category", "--points", "launches"], "--by category says what points of kernels are."),
    ],
)
def test_an_option_on_other_points_of_a_roofline_is_refused(words: list[str], said: str) -> None:
    assert said in " ".join(refusal("roofline", RAW, *words).split())


def test_every_verb_with_views_is_a_command_and_the_reverse() -> None:
    context = click.Context(cli)
    verbs = {name: cli.get_command(context, name) for name in COMMANDS}
    assert {name for name, one in verbs.items() if isinstance(one, Verb) and one.views} == VIEWS.keys()


def test_what_is_typed_is_read_as_click_reads_it() -> None:
    typed = Typed(["a", "-ob", "--by=x", "--by", "y", "-", "--", "--z"], lambda: [click.Option(["--by"])])
    assert typed.arguments == ["a", "-", "--z"]
    assert (typed.last("-o"), typed.last("--by"), typed.last("--z")) == ("b", "y", None)
    assert typed.without("--by", "x") == ["a", "-ob", "--by", "y", "-", "--", "--z"]
    assert typed.without("--by", "y") == ["a", "-ob", "--by=x", "-", "--", "--z"]
    assert typed.without("--by", "z") is None
