"""Kernels in the files that a path names: cubins, fat binaries, programs and archives with them, PTX, prints of ptxas.

A file is read image by image, and never whole, so that memory does not grow with it. Beside the cubins of Triton lie
files of metadata, which say how a kernel is launched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ncu_launch.errors import NcuBenchError

from ncu_parsers.binaries import resource_usage_text
from ncu_parsers.binaries.cubin import Cubin
from ncu_parsers.binaries.fatbin import LARGEST_IMAGE, Image, ImageKind, images_of
from ncu_parsers.binaries.kernel_resources import KernelResources, PtxKernel
from ncu_parsers.binaries.licences import library_of
from ncu_parsers.binaries.ptx import MOST_BEGINNING, is_ptx, ptx_kernels
from ncu_parsers.sources.elf import ARCHIVE, CUDA, FATBIN, MAGIC, NO_BITS, DamagedBinary, Elf

FAT_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""Sections of host programs, and of objects that are linked again for the device."""
LARGEST_TEXT = 1 << 26
SMALLEST = 32
WARP = 32
MEMBER_HEADER = 60
NOT_CODE = (
    ".csv", ".gz", ".json", ".llir", ".log", ".ncu-rep", ".nsys-rep", ".parquet", ".py", ".sqlite", ".ttgir", ".ttir",
    ".txt", ".zst",
)  # fmt: skip
"""Endings of files in a folder that are not looked into."""
PROFILED = b"==PROF=="
"""A line of ncu begins so."""
LONGEST_LOG = 1 << 22
"""First bytes of a text in which a print of ptxas is looked for: builds print much before it."""
BEGINNINGS = (MAGIC, FATBIN, ARCHIVE)


@dataclass(frozen=True)
class FoundKernel:
    """A kernel, the file that it is in, and the number of its image there.

    `closed_library` names the library of NVIDIA whose licence forbids disassembly; "" for all other code.
    """

    resources: KernelResources
    path: str
    image: int
    closed_library: str = ""


@dataclass
class CodeReading:
    """What was met while kernels were read: files with code, kernels as PTX with their file, and damage by file."""

    files: int = 0
    ptx: list[tuple[str, PtxKernel]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    skipped_images: int = 0


def holds_code(path: Path) -> bool:
    """True for a file whose first bytes are those of an ELF file, an archive, a fat binary or PTX."""
    return _begins_as_code(_first_bytes(path, MOST_BEGINNING))


def holds_code_or_print(path: Path) -> bool:
    """True for a file with code, and for a text in which ptxas or cuobjdump printed resources, and ncu no launches."""
    head = _first_bytes(path, MOST_BEGINNING)
    if _begins_as_code(head):
        return True
    text = b"" if b"\0" in head else _first_bytes(path, LONGEST_LOG)
    return any(word in text for word in resource_usage_text.WORDS) and PROFILED not in text


def _begins_as_code(head: bytes) -> bool:
    return head.startswith(BEGINNINGS) or is_ptx(head)


def _first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file; none of a pipe, or if it cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size < SMALLEST:
            return b""
        with path.open("rb") as stream:
            return stream.read(count)
    except OSError:
        return b""


def code_files(path: Path) -> Iterator[Path]:
    """The file, or the files with code below a folder, sorted by name; of texts there only PTX."""
    if not path.is_dir():
        yield path
        return
    for folder, inner, names in os.walk(path):
        inner.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if not name.endswith(NOT_CODE) and holds_code(file):
                yield file


def kernels_in(
    path: Path, reading: CodeReading, progress: Callable[[str], None] = lambda name: None
) -> Iterator[FoundKernel]:
    """The kernels of all code that a path names, file by file. What is damaged is named in `reading`, and left out.

    Raises `NcuBenchError` if the path does not exist, or a file that was named cannot be read.
    """
    if not path.exists():
        raise NcuBenchError(
            f"{path} does not exist.", advice="Check the path; relative paths start at the current folder."
        )
    for file in code_files(path):
        progress(str(file))
        try:
            with file.open("rb") as stream:
                yield from _kernels_of(stream, file, reading)
        except OSError as error:
            if path.is_dir():
                reading.damaged.append(f"{file}: {error.strerror or error}")
                continue
            raise NcuBenchError(f"{file} cannot be read: {error.strerror or error}.") from error
    if not path.is_dir() and reading.damaged:
        raise NcuBenchError(
            f"{reading.damaged[0]}.", "The file is damaged, or was cut while it was copied.", "Build or copy it again."
        )


def _kernels_of(stream: BinaryIO, file: Path, reading: CodeReading) -> Iterator[FoundKernel]:
    head = stream.read(MOST_BEGINNING)
    reading.files += 1
    try:
        if head.startswith(BEGINNINGS):
            for number, image in enumerate(_images(stream)):
                yield from _kernels_of_image(image, number, file, reading)
        elif is_ptx(head):
            reading.ptx += [(str(file), one) for one in ptx_kernels(_text(stream))]
        else:
            for one in resource_usage_text.resources_in_text(_text(stream)):
                yield FoundKernel(one, str(file), 0, library_of(str(file), one.name))
    except DamagedBinary as error:
        reading.damaged.append(f"{file}: {error}")


def _text(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read(LARGEST_TEXT).decode("utf-8", "replace")


def _images(stream: BinaryIO) -> Iterator[Image]:
    """The images of a file: of a fat binary, of the sections of a host program, or the file itself as a cubin."""
    end = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if stream.read(4) == FATBIN:
        yield from images_of(stream, 0, end)
        return
    for begin, last in _members(stream, end):
        elf = Elf(stream, begin)
        if elf.machine == CUDA:
            if last - begin > LARGEST_IMAGE:
                raise DamagedBinary(f"a cubin of {last - begin:,} bytes")
            yield Image(ImageKind.CUBIN, 0, partial(_part, stream, begin, last))
        for section in elf.sections if elf.machine != CUDA else ():
            if section.name in FAT_SECTIONS and section.kind != NO_BITS:
                first = begin + section.offset
                yield from images_of(stream, first, min(first + section.size, last))


def _members(stream: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    """The positions of the ELF files in an archive of objects, or of the file itself.

    Source: the common format of `ar`, headers of 60 bytes with the size of what follows from byte 48 on.
    """
    if _part(stream, 0, len(ARCHIVE)) != ARCHIVE:
        yield 0, end
        return
    at = len(ARCHIVE)
    while at + MEMBER_HEADER <= end:
        size = _part(stream, at, at + MEMBER_HEADER)[48:58].strip()
        begin = at + MEMBER_HEADER
        if not size.isdigit() or begin + int(size) > end:
            raise DamagedBinary("an archive is cut")
        if _part(stream, begin, begin + len(MAGIC)) == MAGIC:
            yield begin, begin + int(size)
        at = begin + int(size) + int(size) % 2


def _part(stream: BinaryIO, begin: int, end: int) -> bytes:
    stream.seek(begin)
    return stream.read(end - begin)


def _kernels_of_image(image: Image, number: int, file: Path, reading: CodeReading) -> Iterator[FoundKernel]:
    try:
        if image.kind is ImageKind.PTX:
            text = image.content().rstrip(b"\0").decode("utf-8", "replace")
            reading.ptx += [(str(file), one) for one in ptx_kernels(text)]
        elif image.kind is ImageKind.CUBIN:
            launched = _launched_as(file)
            for one in Cubin(image.content()).kernels():
                yield FoundKernel(launched(one), str(file), number, library_of(str(file), one.name))
        else:
            reading.skipped_images += 1
    except DamagedBinary as error:
        reading.damaged.append(f"{file}, image {number}: {error}")


def _launched_as(file: Path) -> Callable[[KernelResources], KernelResources]:
    """What Triton's metadata beside a cubin add: threads of a block and dynamic shared memory."""
    beside = file.with_suffix(".json")
    if file.suffix != ".cubin" or not beside.is_file() or beside.stat().st_size > LARGEST_TEXT:
        return lambda kernel: kernel
    try:
        known = json.loads(beside.read_text("utf-8"))
    except (ValueError, OSError):
        return lambda kernel: kernel
    warps, shared = (known.get(name) if isinstance(known, dict) else None for name in ("num_warps", "shared"))
    threads = warps * WARP if isinstance(warps, int) and 0 < warps <= WARP else None
    dynamic = shared if isinstance(shared, int) and shared >= 0 else None
    return lambda kernel: replace(kernel, threads=threads, dynamic_shared_bytes=dynamic)


def cubin_with(kernel: FoundKernel) -> Cubin | None:
    """The cubin of a kernel, read again; None if only what ptxas printed is known, or the file changed.

    Raises `NcuBenchError` if the licence of its library forbids disassembly, or the file cannot be read.
    """
    if kernel.closed_library:
        raise NcuBenchError(
            f"{kernel.resources.name} is of {kernel.closed_library}, whose licence forbids disassembly.",
            advice="Its registers, shared memory and occupancy are known: ncu-bench kernel FILE.",
        )
    try:
        with Path(kernel.path).open("rb") as stream:
            if not stream.read(len(ARCHIVE)).startswith(BEGINNINGS):
                return None
            image = next((one for number, one in enumerate(_images(stream)) if number == kernel.image), None)
            return Cubin(image.content()) if image is not None and image.kind is ImageKind.CUBIN else None
    except (OSError, DamagedBinary) as error:
        raise NcuBenchError(f"{kernel.path} cannot be read again: {error}.") from error
