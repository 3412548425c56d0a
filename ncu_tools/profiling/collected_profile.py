"""A collected profile: its reports read, its launches written to the run folder, and notes on them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import Manifest
from ncu_launch.files.run_files import COMPILE_LOG, EXPECTED, INDUCTOR, LOGS, MODULES, RANKS, REPORTS, USER_RANGES
from ncu_launch.files.typed_json import UNREADABLE, object_in
from ncu_launch.profile.launch_count import LaunchCounts
from ncu_launch.profile.plan import OPERATORS_TOOL
from ncu_launch.profile.run_outcome import timelines
from ncu_parsers.derived.operators.inductor_sources import Compiled, compiled_in, keep
from ncu_parsers.derived.operators.python_locations import Location, with_locations_of_modules
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import Parsed, parse, parse_two_runs
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema.tables import ASKED_METRICS, table_metadata, with_metadata

from ncu_tools.kernels.kernel_cache import cache_kernels
from ncu_tools.kernels.matching.launch_signatures import COPIES, is_one_of
from ncu_tools.model.expected.both_sides import collection_of
from ncu_tools.model.expected.measured_vs_expected import compare, summary
from ncu_tools.model.expected.operators_of_layers import expected_of
from ncu_tools.runs.loading import LAUNCHES


@dataclass(frozen=True)
class CollectedProfile:
    """The result of a profile, stored in its run folder.

    `table` has a row per launch and the columns of docs/dev/architecture.md; it is None if a timeline was recorded
    correctly but has no GPU work, as explained in `idle`. `announced` are notes that the listener got before the run,
    `notes` all others; `against_expected` are sentences on measured and expected FLOPs. `failure` is the reason why the
    run collected less than requested, None if it succeeded.
    """

    folder: Path
    manifest: Manifest
    table: pa.Table | None = None
    announced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    against_expected: tuple[str, ...] = ()
    idle: str = ""
    failure: NcuBenchError | None = None


def keep_profile(
    table: pa.Table,
    read_notes: Sequence[str],
    manifest: Manifest,
    folder: Path,
    *,
    announced: Sequence[str] = (),
    warm: LaunchCounts | None = None,
) -> CollectedProfile:
    """Write launches and kernels as Parquet into the run folder, and gather the notes.

    `announced` are notes of the manifest that the listener already has; `warm` has the launches of the warm model, if
    counted.
    """
    table = with_locations_of_modules(table, module_functions(folder))
    table = with_metadata(table, {**table_metadata(table), ASKED_METRICS: manifest.metrics})
    write_table(table, folder / LAUNCHES)
    cache_kernels(folder / LAUNCHES)
    notes = [
        *(note for note in manifest.notes if note not in announced),
        *keep_compiled(folder),
        *_unknown(manifest),
        *_unattributed(table),
        *_uneven(table, manifest, warm),
        *read_notes,
    ]
    expected = tuple(_against_expected(manifest, table, folder))
    return CollectedProfile(folder, manifest, table, tuple(announced), tuple(notes), expected)


def module_functions(folder: Path) -> dict[str, Location]:
    """Locations of the functions of a model's modules, and of a program's ranges; {} if neither was written."""
    found: dict[str, Location] = {}
    for file in (folder / MODULES, *sorted(folder.glob(f"{RANKS}/*/{MODULES}"))):
        for path, place in object_in(file).items():
            with suppress(*UNREADABLE):
                found.setdefault(path, _location(*place))
    ranges = folder / USER_RANGES
    for line in ranges.read_text("utf-8", errors="replace").splitlines() if ranges.is_file() else ():
        with suppress(*UNREADABLE, KeyError):
            record = json.loads(line)
            found.setdefault(str(record["range"]), _location(*record["opened_in"]))
    return found


def _location(file: object, line: object, function: object) -> Location:
    return Location(str(file).replace("\\", "/"), int(str(line)), str(function))


def keep_compiled(folder: Path) -> list[str]:
    """Replace PyTorch's logs of compiled kernels by one small file; returns a note on it.

    Ranks compile the same kernels: only the first rank's logs are kept.
    """
    written = (folder / LOGS / COMPILE_LOG, *sorted(folder.glob(f"{RANKS}/*/{LOGS}/{COMPILE_LOG}")))
    logs = [one for one in written if one.is_dir()]
    compiled: Compiled = {}
    for one in logs:
        with suppress(NcuBenchError):  # nothing was compiled, or all of it came from a cache without the sources
            compiled = compiled or compiled_in(str(one))
        shutil.rmtree(one, ignore_errors=True)
    if compiled:
        keep(compiled, folder / INDUCTOR)
    if not logs or compiled:
        return []
    return ["the operators in torch.compile's kernels are not known: PyTorch wrote no record of them while compiling"]


def parsed_reports(manifest: Manifest, folder: Path) -> Parsed | None:
    """The launches of the run: of its last report or timeline, or of the two reports with the same launches."""
    if manifest.source == "nsys":
        traced = find_sources([str(path) for path in timelines(folder)])
        return parse(traced) if traced else None
    written = [folder / REPORTS / ran.report for ran in manifest.tool_runs if ran.report]
    wanted = written if len(written) == 2 else written[-1:]
    reports = find_sources([str(path) for path in wanted if path.is_file() and path.stat().st_size])
    if len(reports) == 2:
        return parse_two_runs(*reports, ended_early=manifest.partial)
    return parse(reports) if reports else None


def why_no_gpu_work(parsed: Parsed | None) -> str | None:
    """The reason why a timeline that was recorded and read correctly has no launches; None in every other case."""
    from ncu_parsers.launches.nsys.nsys_sqlite import NoGpuWork

    if parsed is None or parsed.table is not None:
        return None
    return next((error.paragraph for error in parsed.refused.values() if isinstance(error, NoGpuWork)), None)


def nothing_collected(parsed: Parsed | None, failure: NcuBenchError | None, folder: Path) -> NcuBenchError:
    """The error to raise if there are no launches."""
    refused = next(iter(parsed.refused.values()), None) if parsed is not None else None
    return (
        failure
        or refused
        or NcuBenchError(
            "The run collected nothing.",
            f"What it printed is in {folder / LOGS}.",
            "Check that the program uses the GPU.",
        )
    )


def why_no_operators(manifest: Manifest) -> NcuBenchError | None:
    """Why a successful program under the operator collector collected nothing; None for any other run."""
    if manifest.source != OPERATORS_TOOL or "program" not in manifest.workload:
        return None
    return NcuBenchError(
        "The program ran no operator of PyTorch inside of ncu_tools.range.",
        "Without a profiler nothing else of a program is counted.",
        'Mark a part of it: with ncu_tools.range("name"): ... (docs/python.md), or profile it under ncu.',
    )


def _against_expected(manifest: Manifest, table: pa.Table, folder: Path) -> list[str]:
    """Measured against expected FLOPs, a sentence for the model and each phase; [] if there is nothing to compare."""
    if manifest.source != "ncu" or not (folder / EXPECTED).is_file():
        return []
    return summary(compare(table, expected_of(str(folder)), collection=collection_of(manifest)))


def _unattributed(table: pa.Table) -> list[str]:
    """A note on launches without a module, if some have one."""
    modules = table.column("module")
    if modules.null_count == len(modules) or not modules.null_count:
        return []
    return [f"{modules.null_count} of {len(modules)} launches belong to no module (sums of gradients, the optimizer)"]


def _uneven(table: pa.Table, manifest: Manifest, warm: LaunchCounts | None) -> list[str]:
    """A note on iterations of a whole run under ncu or nsys that launched other numbers of kernels than expected.

    Expected are the launches of the last warm-up step, or, if not counted, those of the other iterations. Copies of a
    timeline do not count.
    """
    if manifest.source == OPERATORS_TOOL or manifest.partial or collection_of(manifest).filters:
        return []
    kernels = table.filter(~is_one_of(table, "operation", COPIES))
    launches = Counter(one for one in kernels.column("iteration").to_pylist() if one is not None)
    expected = {sum(warm.warm.values())} if warm is not None else set[int]()
    if len(expected | set(launches.values())) < 2:
        return []
    listed = [f"{number} in iteration {iteration}" for iteration, number in sorted(launches.items())[:3]]
    if warm is not None:
        listed.insert(0, f"{sum(warm.warm.values())} in the last warm-up step, counted outside of {manifest.source}")
    return [
        f"different numbers of kernels were launched ({', '.join(listed)}): something was chosen or compiled inside "
        "the profiled range, or the work differs; more --warmup lets it settle"
    ]


def _unknown(manifest: Manifest) -> list[str]:
    unknown = manifest.facts.get("unknown_operators") or {}
    if not unknown:
        return []
    listed = ", ".join(f"{name} ({count} calls)" for name, count in sorted(unknown.items()))
    return [f"FLOPs of these operators are not known, and are left empty: {listed}"]
