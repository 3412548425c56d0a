"""Operators and model lines from which torch.compile generated its kernels.

Inductor writes them while it compiles, depending on its version: a structured log (`TORCH_TRACE`), folders with its
output code and graphs (`TORCH_COMPILE_DEBUG`), or JSON files of kernels with their nodes and stacks, which tlparse
extracts from the log. A kernel's name is unique within one graph only: if several graphs use a name, its entry merges
all of their kernels. Sources: `get_kernel_metadata` in torch/_inductor/utils.py, `dump_inductor_provenance_info` and
`set_kernel_post_grad_provenance_tracing` in torch/_inductor/debug.py, `trace_structured` in
torch/_logging/_internal.py.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import write_whole

from ncu_parsers.derived.operators.python_locations import COMPILED_LINES, Location, is_machinery, within_packages
from ncu_parsers.schema import arrays, tables

FORMAT, FORMAT_VERSION = "ncu_bench_inductor", 1
"""Key and version of the file that `keep` writes into a run folder."""

LARGEST_FILE = 1 << 28
MOST_FILES = 100_000
"""Largest file in bytes, logs excepted, and most files of a folder; inductor writes less."""

GENERATED = re.compile(r"triton_(?:poi|red|per|tem|for|spl|mix|unk)_\w*|cpp_(?:fused|CppMicroGemm)\w*")
"""Names of kernels that inductor generates."""

_GRAPH_NUMBER = re.compile(r"graph_\d+_")
_HANDLE = re.compile(r":\d+$")
_FILE_COMMENT = re.compile(r"\s*# File: (.+?):(\d{1,9})(?: in ([\w.<>]+))?, code: ")
_NODE = re.compile(r"\s+(\w+)(?:: \"[^\"]*\"(?: # [^=]*)?)? = ([\w.]+)\(")
_ATEN = re.compile(r"(?:torch\.)?ops\.(\w+\.\w+)(?:\.\w+)?|torch\._C\._nn\.(\w+)")
_SOURCES = re.compile(r"\s*# (?:Topologically Sorted |Unsorted )?Source Nodes: \[.*?\], Original ATen: \[(.*)\]")
_MAPPING = re.compile(r"\s*#\s+\S+ => ([\w, ]+)$")
_DEFINITION = re.compile(r"(\w+) = async_compile\.\w+\(")
_STACK_FRAME = re.compile(r'File "(.+?)", line (\d{1,9}), in ([\w.<>]+)')

GRAPH, CODE, NODES, STACKS = "graph", "code", "nodes", "stacks"
_OF_LOG = {
    "inductor_post_grad_graph": GRAPH,
    "inductor_output_code": CODE,
    "inductor_provenance_tracking_node_mappings": NODES,
    "inductor_provenance_tracking_kernel_stack_traces": STACKS,
    "inductor_triton_kernel_to_post_grad_nodes": NODES,
}
_OF_FOLDER = {
    "fx_graph_readable.py": GRAPH,
    "fx_graph_transformed.py": GRAPH,
    "output_code.py": CODE,
    "inductor_provenance_tracking_node_mappings.json": NODES,
    "inductor_triton_kernel_to_post_grad_nodes.json": NODES,
    "inductor_generated_kernel_to_post_grad_nodes.json": NODES,
    "inductor_generated_kernel_stack_traces.json": STACKS,
}
"""Files of one folder that describe the same graph; if two give the same fact, the later one here is used."""
_OF_TLPARSE = re.compile(r"inductor_provenance_tracking_kernel_stack_traces_\d+\.json")


class CompiledKernel(NamedTuple):
    """Sources of a generated kernel: `operators` such as `aten.add`, `lines` of the model; () if unknown.

    `definitions`: number of different kernels with this name.
    """

    operators: tuple[str, ...]
    lines: tuple[Location, ...]
    definitions: int = 1

    @property
    def places(self) -> str:
        """The lines as `net.py:11, 12 (forward), mlp.py:4 (forward)`; "" without any."""
        by_function: dict[tuple[str, str], list[str]] = {}
        for one in self.lines:
            by_function.setdefault((one.file, one.function), []).append(str(one.line))
        return ", ".join(
            f"{file}:{', '.join(numbers)} ({function})" for (file, function), numbers in by_function.items()
        )

    @property
    def title(self) -> str:
        """Operators and lines in one text."""
        return "; ".join(part for part in (", ".join(self.operators), self.places) if part)


Compiled = Mapping[str, CompiledKernel]


def compiled_name(kernel: str) -> str:
    """The name that inductor gave to a kernel: without parameters, and on a CPU without the graph's number."""
    return _GRAPH_NUMBER.sub("", kernel.partition("(")[0].strip(), count=1)


def with_compiled_lines(table: pa.Table, path: str) -> pa.Table:
    """Set each generated kernel's location to the lines of its operators (`COMPILED_LINES`).

    `path` is read by `compiled_in`.
    """
    compiled = compiled_in(path)
    codes, names = tables.codes(table, "kernel_name")
    kernels = [compiled.get(compiled_name(name)) if name else None for name in names]
    lines = [kernel.places or None if kernel else None for kernel in kernels]
    return table.append_column(COMPILED_LINES, arrays.recoded(codes, lines))


@lru_cache(maxsize=4)
def compiled_in(path: str) -> Compiled:
    """The generated kernels that a folder, log or kept file describes, by name.

    Raises `NcuBenchError` if `path` describes no kernel or cannot be read.
    """
    found: dict[str, CompiledKernel] = {}
    try:
        for source in (_kept_in, _in_logs, _in_debug_folders, _in_tlparse_folders):
            for name, kernel in source(Path(path)).items():
                found.setdefault(name, kernel)
    except OSError as error:
        raise NcuBenchError(f"{path} cannot be read: {error.strerror}.", advice="Check the path.") from error
    if not found:
        raise NcuBenchError(
            f"{path} holds nothing that PyTorch's inductor wrote of its kernels.",
            "It is another folder, or nothing was compiled while it was written, as when all came from a cache.",
            "Run the program with TORCH_COMPILE_DEBUG=1 and TORCHINDUCTOR_FORCE_DISABLE_CACHES=1, and name its folder "
            "torch_compile_debug.",
        )
    return found


# ----------------------------------------------------------------------------------------------- where it is written


def _files(path: Path) -> list[Path]:
    """The files of a folder and its subfolders, or the file itself; sorted by name."""
    if path.is_file():
        return [path]
    found = []
    for folder, folders, names in os.walk(path, onerror=_raise):
        folders.sort()
        found += [Path(folder) / name for name in sorted(names)]
        if len(found) > MOST_FILES:
            raise OSError(0, f"it holds more than {MOST_FILES} files")
    return found


def _raise(error: OSError) -> None:
    raise error


def _in_logs(path: Path) -> Compiled:
    """Kernels in structured logs: each entry is a line of JSON, followed by its text on lines that begin with a tab."""
    graphs: list[dict[str, str]] = []
    for file in _files(path):
        if file.suffix == ".log" and file.name.startswith("dedicated_log_torch_trace"):
            graphs += _graphs_in_log(file)
    return _merged(map(_of_graph, graphs))


def _graphs_in_log(file: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    current: dict[tuple[Any, ...], dict[str, str]] = {}
    for compilation, kind, text in _entries(file):
        of_graph = current.get(compilation)
        if of_graph is None or kind in of_graph or kind == GRAPH:
            of_graph = current[compilation] = {}
            found.append(of_graph)
        of_graph[kind] = text
    return found


def _entries(file: Path) -> Iterator[tuple[tuple[Any, ...], str, str]]:
    """Compilation, kind and text of each log entry that describes kernels."""
    entry: tuple[tuple[Any, ...], str] | None = None
    lines: list[str] = []
    with file.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.startswith("\t"):
                if entry is not None:
                    lines.append(line[1:])
                continue
            if entry is not None:
                yield (*entry, "".join(lines))
            entry, lines = _entry(line), []
    if entry is not None:
        yield (*entry, "".join(lines))


def _entry(line: str) -> tuple[tuple[Any, ...], str] | None:
    """Compilation and kind of an entry, from its first line; None if it describes no kernel."""
    if "inductor_" not in line:
        return None
    described = _json(line[line.find("{") :])
    if not isinstance(described, dict):
        return None
    artifact = described.get("artifact")
    name = artifact.get("name") if isinstance(artifact, dict) else None
    kind = _OF_LOG.get(str(name)) or next((_OF_LOG[key] for key in described if key in _OF_LOG), None)
    of = tuple(str(described.get(key)) for key in ("frame_id", "frame_compile_id", "attempt", "compiled_autograd_id"))
    return None if kind is None else (of, kind)


def _in_debug_folders(path: Path) -> Compiled:
    """Kernels in folders with output code, one for each graph."""
    folders: dict[Path, dict[str, str]] = {}
    for file in _files(path):
        if file.name in _OF_FOLDER and file.stat().st_size <= LARGEST_FILE:
            folders.setdefault(file.parent, {})[file.name] = file.read_text(encoding="utf-8", errors="replace")
    return _merged(
        _of_graph({kind: texts[name] for name, kind in _OF_FOLDER.items() if name in texts})
        for texts in folders.values()
    )


def _in_tlparse_folders(path: Path) -> Compiled:
    """Kernels in the files of tlparse: their lines alone, since it keeps the graphs of a folder apart by number."""
    return _merged(
        _of_graph({STACKS: file.read_text(encoding="utf-8", errors="replace")})
        for file in _files(path)
        if _OF_TLPARSE.fullmatch(file.name) and file.stat().st_size <= LARGEST_FILE
    )


# ------------------------------------------------------------------------------------------------------- one graph


class _Node(NamedTuple):
    operator: str | None
    line: Location | None


def _of_graph(texts: Mapping[str, str]) -> dict[str, CompiledKernel]:
    """The kernels of one graph, from the texts that describe it."""
    nodes = dict(_nodes(texts.get(GRAPH, "")))
    operators: dict[str, list[str]] = {}
    lines: dict[str, list[Location]] = {}
    for name, of_aten, of_nodes in _definitions(texts.get(CODE, "")):
        operators[name] = of_aten
        lines[name] = [line for one in of_nodes if one in nodes and (line := nodes[one].line)]
    for name, of_nodes in _node_mappings(texts.get(NODES, "")):
        known = [nodes[one] for one in of_nodes if one in nodes]
        if not operators.get(name):
            operators.setdefault(name, []).extend(one.operator for one in known if one.operator)
        lines.setdefault(name, []).extend(one.line for one in known if one.line)
    by_stack: dict[str, list[Location]] = {}
    for name, stacks in _stacks(texts.get(STACKS, "")):
        by_stack.setdefault(name, []).extend(line for stack in stacks if (line := _line_of_stack(stack)))
    lines |= {name: found for name, found in by_stack.items() if found}
    return {
        name: CompiledKernel(tuple(sorted(set(operators.get(name, ())))), tuple(sorted(set(lines.get(name, ())))))
        for name in dict.fromkeys((*operators, *lines))
        if operators.get(name) or lines.get(name)
    }


def _nodes(graph: str) -> Iterator[tuple[str, _Node]]:
    """The nodes of a graph as PyTorch prints it: Python, with a comment on the model's line above each node."""
    line: Location | None = None
    for text in graph.splitlines():
        comment = _FILE_COMMENT.match(text)
        if comment:
            line = _location(comment[1], comment[2], comment[3])
        elif "# No stacktrace found" in text:
            line = None
        elif node := _NODE.match(text):
            called = _ATEN.search(node[2])
            yield node[1], _Node((called[1] or f"aten.{called[2]}") if called else None, line)


def _definitions(code: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Name, operators and nodes of each kernel in output code; operators and nodes come from the comment above it."""
    operators: list[str] = []
    nodes: list[str] = []
    for text in code.splitlines():
        if sources := _SOURCES.match(text):
            operators, nodes = [one.strip() for one in sources[1].split(",") if one.strip()], []
        elif mapping := _MAPPING.match(text):
            nodes += [one.strip() for one in mapping[1].split(",")]
        elif definition := _DEFINITION.match(text):
            if operators:
                yield definition[1], operators, nodes
            operators, nodes = [], []


def _node_mappings(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and nodes of each kernel: an object of lists, or one that holds such an object (`cppCodeToPost`)."""
    found = _json(text)
    if isinstance(found, dict):
        found = found.get("cppCodeToPost", found)
    for name, nodes in found.items() if isinstance(found, dict) else ():
        if isinstance(nodes, list) and _is_kernel(name):
            yield _HANDLE.sub("", name), [str(one) for one in nodes]


def _stacks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Name and node stacks of each kernel; stacks as Python prints them."""
    found = _json(text)
    for name, stacks in found.items() if isinstance(found, dict) else ():
        if isinstance(stacks, dict):
            stacks = stacks.get("stack_traces")
        if isinstance(stacks, list) and _is_kernel(name):
            yield _HANDLE.sub("", name), [str(one) for one in stacks]


def _is_kernel(name: str) -> bool:
    """True for a generated kernel's name, false for a library's (`extern_kernels.mm:1`)."""
    return bool(GENERATED.fullmatch(_HANDLE.sub("", name)))


def _line_of_stack(stack: str) -> Location | None:
    """The innermost line that is not in machinery."""
    found = [_location(*frame.groups()) for frame in _STACK_FRAME.finditer(stack)]
    return next((one for one in reversed(found) if one is not None), None)


def _location(file: str, line: str, function: str | None) -> Location | None:
    file = file.replace("\\", "/")
    return None if is_machinery(file) else Location(file, int(line), function or "?")


def _json(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


# ------------------------------------------------------------------------------------------------------- all graphs


def _merged(graphs: Iterable[Mapping[str, CompiledKernel]]) -> Compiled:
    """The kernels of all graphs by name, with short paths."""
    by_name: dict[str, list[CompiledKernel]] = {}
    for graph in graphs:
        for name, kernel in graph.items():
            different = by_name.setdefault(name, [])
            if kernel not in different:
                different.append(kernel)
    shorter = _short_paths({line.file for kernels in by_name.values() for one in kernels for line in one.lines})
    return {
        name: CompiledKernel(
            tuple(sorted({operator for one in kernels for operator in one.operators})),
            tuple(sorted({line._replace(file=shorter[line.file]) for one in kernels for line in one.lines})),
            len(kernels),
        )
        for name, kernels in by_name.items()
    }


def _short_paths(files: Iterable[str]) -> dict[str, str]:
    """Paths relative to site-packages for installed packages; other paths without the folder common to all."""
    own = {file: within_packages(file) for file in files}
    whole = [path for path in own.values() if path.startswith("/")]
    shared = posixpath.commonpath([posixpath.dirname(path) for path in whole]) if whole else ""
    return {file: path[len(shared) :].lstrip("/") if path in whole else path for file, path in own.items()}


# --------------------------------------------------------------------------------------------------- kept in a run


def keep(compiled: Compiled, path: Path) -> None:
    """Write kernels as a file that `compiled_in` reads: no source text, and only the shown paths."""
    kernels = {
        name: {"operators": one.operators, "lines": one.lines, "definitions": one.definitions}
        for name, one in sorted(compiled.items())
    }
    text = json.dumps({FORMAT: FORMAT_VERSION, "kernels": kernels}, indent=1)
    write_whole(path, f"{text}\n".encode())


def _kept_in(path: Path) -> Compiled:
    """The kernels of a file that `keep` wrote; {} for anything else."""
    if path.suffix != ".json" or not path.is_file() or path.stat().st_size > LARGEST_FILE:
        return {}
    found = _json(path.read_text(encoding="utf-8", errors="replace"))
    if not isinstance(found, dict) or found.get(FORMAT) != FORMAT_VERSION:
        return {}
    try:
        return {str(name): _kept_kernel(one) for name, one in found["kernels"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _kept_kernel(kept: Mapping[str, Any]) -> CompiledKernel:
    lines: Sequence[Any] = kept["lines"]
    return CompiledKernel(
        tuple(str(one) for one in kept["operators"]),
        tuple(Location(str(file), int(line), str(function)) for file, line, function in lines),
        int(kept["definitions"]),
    )
