"""Disassemble a cubin with `nvdisasm`: on PATH, of a CUDA toolkit, or of the Python package `triton`.

nvdisasm prints labels, `.L_x_0`, in place of addresses; the address of a jump's target is added after its label, as in
NVIDIA's package. It refuses cubins of CUDA 11 and older that a driver loaded: it then gets the bare code of each
kernel, and prints addresses.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from ncu_launch.files.atomic_files import temporary_folder
from ncu_launch.profilers.installed_tools import ask

from ncu_parsers.sources.elf import DamagedBinary, Elf

TOOL = "nvdisasm"
_SECTION = re.compile(r"\.text\.(\S+):$")
_LABEL = re.compile(r"(\.L_x?_?\w+):$")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]+)\*/\s+(.*?)\s*;?\s*$")
_TARGET = re.compile(r"`\((\.L\w+)\)$")
_JUMP = re.compile(r"(/\*[0-9a-f]+\*/\s+(?:@\S+ )?(?:BRA|BSSY|CALL\.REL)\b.*)\b0x([0-9a-f]+)(\s*;?\s*)$", re.MULTILINE)


def tool_path() -> str | None:
    """The path of this machine's `nvdisasm`; None without one."""
    return shutil.which(TOOL) or _of_toolkit_or_triton(os.environ.get("CUDA_HOME", ""))


@lru_cache(maxsize=2)
def _of_toolkit_or_triton(home: str) -> str | None:
    folders = [Path(one) / "bin" for one in (home, "/usr/local/cuda") if one]
    package = find_spec("triton")
    for place in (package.submodule_search_locations or ()) if package else ():
        folders.append(Path(place) / "backends" / "nvidia" / "bin")
    return next((found for folder in folders if (found := shutil.which(TOOL, path=str(folder)))), None)


_RETURN = re.compile(r"(\bRET\.\S+ \S+) 0x[0-9a-f]+")


class Disassembly:
    """The instructions of the kernels of a cubin as text, by mangled name and offset."""

    def __init__(self, printed: str) -> None:
        self._texts: dict[str, dict[int, str]] = {}
        self._labels: dict[str, dict[str, int]] = {}
        kernel, waiting = "", list[str]()
        for line in map(str.strip, printed.splitlines()):
            if section := _SECTION.match(line):
                kernel = section[1]
            elif label := _LABEL.match(line):
                waiting.append(label[1])
            elif instruction := _INSTRUCTION.match(line):
                offset = int(instruction[1], 16)
                self._texts.setdefault(kernel, {})[offset] = instruction[2]
                self._labels.setdefault(kernel, {}).update(dict.fromkeys(waiting, offset))
                waiting = []

    def __bool__(self) -> bool:
        """True if it has instructions."""
        return bool(self._texts)

    def offsets(self, kernel: str) -> list[int]:
        """The offsets of a kernel's instructions, as printed; [] for an unknown kernel."""
        return list(self._texts.get(kernel, ()))

    def of(self, kernel: str, addresses: Sequence[int], first: int) -> list[str | None]:
        """The instructions at these addresses of a kernel that begins at `first`; None where unknown."""
        texts, labels = self._texts.get(kernel, {}), self._labels.get(kernel, {})
        return [_with_target(texts.get(address - first), labels, first) for address in addresses]


def _with_target(text: str | None, labels: dict[str, int], first: int) -> str | None:
    target = _TARGET.search(text) if text else None
    if text is None or target is None or target[1] not in labels:
        return text
    return f"{text} {first + labels[target[1]]:#x}"


def disassembled(cubin: bytes, function: int | None = None) -> Disassembly:
    """The instructions of a cubin, or only of the function whose symbol has this number.

    Empty if there is no `nvdisasm`, or it cannot read the cubin.
    """
    tool = tool_path()
    if tool is None or not cubin:
        return Disassembly("")
    with temporary_folder() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        chosen = [] if function is None else ["-fun", str(function)]
        answer = ask([tool, "-c", *chosen, str(path)])
        found = Disassembly("" if answer is None else answer[1])
        return found or Disassembly("\n".join(_of_bare_code(tool, cubin, path)))


def _of_bare_code(tool: str, cubin: bytes, path: Path) -> Iterator[str]:
    """nvdisasm's output for the bare code of each kernel, with labels as for a whole cubin."""
    try:
        file = Elf.of(cubin)
        architecture = f"SM{file.flags & 0xFF}"
        codes = [(one.name, file.content(one)) for one in file.sections if one.name.startswith(".text.")]
    except DamagedBinary:
        return
    for name, code in codes:
        path.write_bytes(code)
        answer = ask([tool, "-b", architecture, str(path)])
        yield f"{name}:\n{_labelled('' if answer is None else answer[1])}"


def _labelled(printed: str) -> str:
    """Replace jump addresses by labels, and put each label before its instruction; addresses of returns are dropped."""
    targets = {int(found[2], 16) for found in _JUMP.finditer(printed)}
    lines = []
    for line in _JUMP.sub(r"\1`(.L_x_\2)\3", _RETURN.sub(r"\1", printed)).splitlines():
        found = _INSTRUCTION.search(line)
        if found is not None and int(found[1], 16) in targets:
            lines.append(f".L_x_{int(found[1], 16):x}:")
        lines.append(line)
    return "\n".join(lines)
