"""Select the reader of a file: text pages of ncu and nsys, binary reports, SQLite exports, traces, compiled code.

The first bytes decide; the file name only if they are ambiguous. A trace format is a file in `timelines/formats`, which
reads it as an `Activity`, and a line in `KINDS`. Readers are imported on demand, so that reading a CSV loads neither
SQLite nor protobuf.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ncu_parsers.detect.other_tools import is_json_of_other_tool, is_tar
from ncu_parsers.ncu_rep import MAGIC
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.sources import memory
from ncu_parsers.sources.elf import ARCHIVE, FATBIN
from ncu_parsers.sources.elf import MAGIC as ELF
from ncu_parsers.sources.sources import Source

if TYPE_CHECKING:
    import pyarrow as pa

    from ncu_parsers.timelines.activity.activity import Activity
    from ncu_parsers.warp_ranges.warp_trace import WarpTrace

HEAD_BYTES = 1 << 16
"""Number of first bytes that are searched: a trace names its devices and settings within 26 KB, before its events."""
TEXT_IN_PARTS = "ncu_parsers.streaming.streaming_reader"
VIEW = "ncu_parsers.launches.launch_view"


class FileKind(NamedTuple):
    """A kind of file: the module that reads it, and its first bytes, or the endings of its name.

    If `words` are given, one of them must occur near the beginning. With `in_parts`, the module's `stream_report` reads
    big files too. With `by_others`, reading depends on other installed software, which the module's `read_with` names
    with its version, because another version may give other data. With `ranges_apart`, the module's `stream_gpu_work`
    reads a file without host ranges, in a fraction of the time.

    A timeline has an `origin`: the `source` of its launches. `activity` names the module and the function that read it
    as an `Activity`; if it is empty, the module's `read_activity` does, and the launches derive from the result. With
    `trims`, this function can read a time window; with `picks_functions` it can filter Python functions. With
    `names_operators` its ranges are always a framework's operators.

    `warps` names the module and the function that read ranges of warps inside kernels; such a file has no launches.
    `begins` decides by the first bytes where `magic` cannot.
    """

    module: str
    magic: tuple[bytes, ...] = ()
    suffixes: tuple[str, ...] = ()
    words: tuple[bytes, ...] = ()
    by_others: bool = False
    in_parts: bool = False
    ranges_apart: bool = False
    origin: str = ""
    activity: tuple[str, str] | None = None
    trims: bool = False
    picks_functions: bool = False
    names_operators: bool = False
    warps: tuple[str, str] | None = None
    begins: Callable[[bytes], bool] | None = None

    def fits(self, head: bytes, name: str) -> bool:
        """True if a file with these first bytes and this name is of this kind."""
        if self.begins is not None and self.begins(head):
            return True
        begins = head.startswith(self.magic) or bool(self.words and head.lstrip().startswith(self.magic))
        return (begins and (not self.words or self.has_words(head))) or self.fits_name(name)

    def fits_name(self, name: str) -> bool:
        """True if a file of this name is of this kind, whatever its content; it may be compressed."""
        return name.lower().endswith(tuple(end + packed for end in self.suffixes for packed in ("", ".gz", ".zst")))

    @property
    def is_viewed(self) -> bool:
        """True if the launches of a timeline derive from its `Activity`."""
        return bool(self.origin) and self.activity is None

    def has_words(self, head: bytes) -> bool:
        """True if the beginning of a file holds one of the kind's words."""
        return any(word in head for word in self.words)


TRACE_WORDS = (b'"traceEvents"', b'"schemaVersion"', b'"ph":')
"""Traces of PyTorch's profiler have one of these near their beginning."""
ROCPROFV3 = (b'"rocprofiler-sdk-tool"',)
PLANES = (b"\x12\x0e/host:metadata", b"\x12\x09/host:CPU", b"\x12\x0d/device:GPU:", b"\x12\x0d/device:TPU:",
          b"\x12\x10Task Environment")  # fmt: skip
"""Names of planes of XLA's profiler, preceded by their field's tag and length."""
STAGES = (b"\x12\x06Kernel\x20\x02",)
"""Name and category (compute) of the stage of kernels that PyTorch's newer profiler writes into Perfetto traces."""
SQLITE = b"SQLite format 3\0"
PTX = (b"\n.target sm_",)
"""Every PTX file names the architecture that it was made for."""
IKET = (b'"graphLaunches"', b'"warpLifetimes"', b'"warpLocIdxs"', b'"rangeNameIdx"', b'"markerNameIdx"', b'"rangeName"',
        b'"markerName"')  # fmt: skip
"""Keys of run-iket's JSON."""
WARPS = (b'"tid":"warp ', b'"tid": "warp ')
"""Threads of Proton's traces from inside kernels."""
CYCLES = (b'"cycles"',)
"""A metric of Proton's trees from inside kernels."""
PICTURES = (b"\x0cWarpLifeTime", b"\x0dStackedRanges", b" / warp 0 (line 0)", b"\x07blk0_g0", b"\x07group_0")
"""Titles of tracks, with their lengths, in Perfetto files of run-iket, Proton, and flashinfer's exporter (with SM
numbers, and before it had them)."""
INSIDE = "ncu_parsers.warp_ranges"


def is_buffer(head: bytes) -> bool:
    """True for a buffer of 64-bit records: blocks and groups in the first word, or a saved array of such words."""
    blocks, groups = (int.from_bytes(head[at : at + 4], "little") for at in (0, 4))
    if not head.startswith((b"\x93NUMPY", b"PK\x03\x04")) and not (0 < blocks <= 1 << 20 and 0 < groups <= 1 << 10):
        return False
    module = importlib.import_module(f"{INSIDE}.profiler_buffer")
    return bool(module.looks_like(head))


KINDS: tuple[FileKind, ...] = (
    FileKind("ncu_parsers.streaming.binary_launches", (MAGIC,), in_parts=True, by_others=True),
    FileKind(
        "ncu_parsers.launches.nsys.nsys_sqlite", (SQLITE,), in_parts=True, ranges_apart=True,
        origin="nsys", activity=("ncu_parsers.timelines.nsys.nsys_activity", "read_sqlite"), trims=True,
    ),
    FileKind(
        "ncu_parsers.launches.nsys.nsys_rep", (b"NVIDIA Tegra Profiler Report",), (".nsys-rep", ".qdrep"),
        by_others=True, in_parts=True, ranges_apart=True,
        origin="nsys", activity=("ncu_parsers.launches.nsys.nsys_rep", "read_activity"), trims=True,
    ),
    FileKind("ncu_parsers.detect.text_reader", begins=is_tar),
    FileKind("ncu_parsers.binaries.not_a_report", (ELF, FATBIN, ARCHIVE)),
    FileKind("ncu_parsers.binaries.not_a_report", (b"//", b".version"), words=PTX),
    FileKind("ncu_parsers.timelines.formats.rocprofv3", (b"{",), words=ROCPROFV3, origin="rocprofv3"),
    FileKind("ncu_parsers.timelines.formats.xplane", (b"\n",), (".xplane.pb",), PLANES, origin="xplane"),
    FileKind(
        f"{INSIDE}.perfetto_picture", (b"\n",), words=PICTURES, warps=(f"{INSIDE}.perfetto_picture", "read_trace"),
    ),
    FileKind(
        "ncu_parsers.timelines.formats.pftrace", (b"\n",), (".pftrace", ".perfetto-trace"), STAGES, origin="pftrace",
        names_operators=True,
    ),
    FileKind(f"{INSIDE}.refusal", (b"{",), words=IKET, warps=(f"{INSIDE}.iket", "read_trace")),
    FileKind(f"{INSIDE}.refusal", (b"{",), words=WARPS, warps=(f"{INSIDE}.proton", "read_trace")),
    FileKind(f"{INSIDE}.refusal", (b"[",), words=CYCLES, warps=(f"{INSIDE}.proton", "read_tree")),
    FileKind(f"{INSIDE}.refusal", warps=(f"{INSIDE}.profiler_buffer", "read_trace"), begins=is_buffer),
    FileKind(
        "ncu_parsers.timelines.kineto.kineto", (b"{", b"["), (".json",), TRACE_WORDS, in_parts=True,
        origin="kineto", names_operators=True, picks_functions=True,
    ),
)  # fmt: skip
"""The first matching kind reads the file; a file that matches none is text."""
TIMELINES = frozenset(kind.origin for kind in KINDS if kind.origin)
"""The `source` of launches from a timeline."""
OF_OPERATORS = frozenset(kind.origin for kind in KINDS if kind.names_operators)
"""The `source` of launches whose operators are always recorded."""
GIT_LFS = b"version https://git-lfs.github.com/spec"
"""First bytes of a Git LFS pointer, which is stored under the name of the real file."""


def read_artefact(source: Source) -> Report:
    """Read a file of any kind.

    Raises `NcuBenchError` with advice if it cannot be read.
    """
    try:
        return reader_of(source)(source)
    except MemoryError as error:
        raise memory.TooBig(
            f"{source.name} could not be read: memory ran out.",
            "The system gives this program less than the report needs.",
            "Read it alone, or where there is more memory.",
        ) from error


def reader_of(source: Source) -> Callable[[Source], Report]:
    """The function that reads `source` as a whole. Raises `NcuBenchError` if it cannot be opened."""
    kind = kind_of(source)
    if kind is not None and kind.is_viewed:
        make = importlib.import_module(VIEW).report_of
        return partial(make, read=activity_reader_of(kind, launches=True), origin=kind.origin)
    read: Callable[[Source], Report] = importlib.import_module(
        kind.module if kind else "ncu_parsers.detect.text_reader"
    ).read_report
    return read


def activity_reader_of(kind: FileKind, *, launches: bool = False) -> Callable[..., Activity]:
    """The function that reads a timeline of this kind as an `Activity`; with `launches`, only what launches need."""
    module, function = kind.activity or (kind.module, "read_activity")
    read: Callable[..., Activity] = getattr(importlib.import_module(module), function)
    return importlib.import_module(VIEW).for_launches(read) if launches and kind.picks_functions else read


def streamer_of(
    source: Source, *, ranges: bool = True
) -> Callable[[Source, Callable[[pa.Table], None]], StreamedReport] | None:
    """The function that reads `source` in parts and passes each as a table to its second argument.

    None if the file must be read as a whole. With `ranges=False`, host ranges are left out if that saves time. Raises
    `NcuBenchError` if it cannot be opened.
    """
    kind = kind_of(source)
    if kind is not None and not kind.in_parts:
        return None
    if kind is not None and kind.is_viewed:
        view = importlib.import_module(VIEW).stream_of
        return partial(view, read=activity_reader_of(kind, launches=True), origin=kind.origin)
    module = importlib.import_module(kind.module if kind else TEXT_IN_PARTS)
    stream: Callable[[Source, Callable[[pa.Table], None]], StreamedReport]
    stream = module.stream_report if ranges or kind is None or not kind.ranges_apart else module.stream_gpu_work
    return stream


def warps_reader_of(source: Source) -> Callable[[Source], WarpTrace] | None:
    """The function that reads ranges of warps inside kernels from `source`; None if it holds none.

    Raises `NcuBenchError` if it cannot be opened.
    """
    kind = kind_of(source)
    if kind is None or kind.warps is None:
        return None
    module, function = kind.warps
    read: Callable[[Source], WarpTrace] = getattr(importlib.import_module(module), function)
    return read


def has_ranges_apart(source: Source) -> bool:
    """True if `source` can be read without host ranges. Raises `NcuBenchError` if it cannot be opened."""
    kind = kind_of(source)
    return kind is not None and kind.ranges_apart


def is_binary_report(source: Source) -> bool:
    """True if `source` is a binary report of ncu. Raises `NcuBenchError` if it cannot be opened."""
    kind = kind_of(source)
    return kind is not None and kind.magic == (MAGIC,)


def read_with(sources: Sequence[Source]) -> str:
    """Other installed software, with versions, on which reading `sources` depends; "" if none.

    Cached results are outdated if it changes. Raises `NcuBenchError` if a source cannot be opened.
    """
    kinds = {kind.module for kind in map(kind_of, sources) if kind is not None and kind.by_others}
    return "; ".join(importlib.import_module(module).read_with() for module in sorted(kinds))


def kind_of(source: Source) -> FileKind | None:
    """The kind of a file by its first bytes and name; None for text. The bytes of a source are read once.

    Raises `NcuBenchError` if it cannot be opened.
    """
    known: dict[str, FileKind | None] = vars(source)
    if "kind" not in known:
        known["kind"] = _kind_by_head(source)
    return known["kind"]


def _kind_by_head(source: Source) -> FileKind | None:
    head = source.head(HEAD_BYTES)
    if head.startswith(GIT_LFS):  # the text reader refuses it with the reason
        return None
    found = next((kind for kind in KINDS if kind.fits(head, source.path)), None)
    if (found is None or found.warps is None) and is_json_of_other_tool(head):  # it refuses this, too
        return None
    return found
