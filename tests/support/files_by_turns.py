"""Each process of pytest-xdist imports only the files of tests that it runs, with `--dist loadfile`.

pytest-xdist has every process import all files and make all tests, to hand them out by number: of three processes two
do that in vain, and on two cores the first test began after half a minute. Here a process first finds one item a file;
what the file holds is found when it is its turn. So nobody knows how many tests there are before the end.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LONGEST = (
    "test_execute.py", "test_html_report.py", "test_timeline_page.py", "test_hostile.py", "test_operators.py",
    "test_profile_with_a_stand_in.py", "test_bench.py", "test_nsys.py", "test_cli.py", "test_parts.py",
    "test_real_tools.py", "test_ranks.py", "test_limits.py", "test_language_commands.py", "test_notebook.py",
    "test_estimate.py", "test_several_runs_page.py", "test_kernel_page.py", "test_streaming.py", "test_datasets.py",
    "test_mcp.py", "test_faults.py", "test_varied_profile.py", "test_docs.py", "test_dask.py", "test_changes.py",
    "test_compare.py", "test_traced_program.py", "test_real_reports.py", "test_source_pages.py",
    "test_python_locations.py", "test_parts_page.py", "test_schemas_of_options.py", "test_golden_texts.py",
    "test_binary_instructions.py", "test_without_the_package.py", "test_schemas.py", "test_odd_runs.py",
    "test_doctor.py", "test_inside_page.py", "test_measured_machines.py", "test_house.py", "test_studies.py",
    "test_wheel.py", "test_expected_work.py", "test_shared_reports.py", "test_engine_steps.py", "test_digest.py",
    "test_every_chip.py", "test_shared_recordings.py", "test_advise_command.py", "test_levers.py",
    "test_concurrent_parses.py", "test_held.py", "test_flop_counter.py", "test_point_series.py",
    "test_damaged_counters.py", "test_point_sums.py", "test_samples.py", "test_user_ranges.py", "test_pictures.py",
    "test_text_roofline.py", "test_gpu_scripts.py", "test_fuzz.py", "test_a_new_rule_and_command.py",
    "test_a_new_trace_format.py", "test_a_new_column_of_hotspots.py", "test_mistakes.py",
    "test_examples_of_pages.py", "test_readable_outputs.py", "test_silent_wrong_numbers.py",
    "test_short_names_everywhere.py", "test_nightly.py",
)  # fmt: skip
"""Files that take the most time, longest first: where several processes share the files, none is left alone with one."""

BY_TURNS = "files_by_turns"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a new process whether it takes whole files: it does not know `--dist`. A test named in a file needs the file."""
    config = node.config
    config.option.loadscopereorder = False  # else pytest-xdist begins with the files of most tests
    node.workerinput[BY_TURNS] = config.option.dist == "loadfile" and not any("::" in one for one in config.args)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """End the run where a process died: pytest-xdist 3.8 may wait for its files for ever."""
    pytest.exit(f"A process died while it ran {crashitem}", returncode=pytest.ExitCode.TESTS_FAILED)


class FileToCome(pytest.Module):
    """A file that is not imported yet."""

    def collect(self) -> list[pytest.Item]:
        return [Turn.from_parent(self, name="every test")]


class Turn(pytest.Item):
    """All tests of a file, which stand in its place while they run."""

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name

    def runtest(self) -> None:
        """Find and run the tests; nothing that they share with tests of other files is kept."""
        items = self.session.items
        place = items.index(self)
        tests = self._tests()
        for test, following in zip(tests, [*tests[1:], None], strict=False):
            items[place] = test  # pytest-xdist compares its name with that of each report
            self.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if self.session.shouldfail or self.session.shouldstop:
                break
        items[place] = self

    def _tests(self) -> list[pytest.Item]:
        assert self.parent is not None
        module = pytest.Module.from_parent(self.parent.parent, path=self.path)
        tests = list(self.session.genitems(module))
        self.config.hook.pytest_collection_modifyitems(session=self.session, config=self.config, items=tests)
        return tests


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    by_turns = getattr(parent.config, "workerinput", {}).get(BY_TURNS)
    return FileToCome.from_parent(parent, path=module_path) if by_turns else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, object, object]:
    """`-m` and `-k` choose among tests, not among files; of these the longest come first."""
    turns = [item for item in items if isinstance(item, Turn)]
    items[:] = [item for item in items if not isinstance(item, Turn)]
    result = yield
    place = {name: number for number, name in enumerate(LONGEST)}
    items += sorted(turns, key=lambda turn: place.get(turn.path.name, len(LONGEST)))
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    if not isinstance(item, Turn):
        return None
    item.runtest()
    return True
