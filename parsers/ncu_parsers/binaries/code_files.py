"""Kernels in a file or folder: cubins, fat binaries, programs and archives with them, PTX, output of ptxas.

Binaries are read image by image, and at most `LARGEST_TEXT` bytes of a text, so that memory does not grow with the
file. Triton writes a metadata file beside each cubin, which says how the kernel is launched.
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
"""Sections that hold fat binaries: of host programs, and of objects with relocatable device code."""
LARGEST_TEXT = 1 << 26
SMALLEST = 32
WARP = 32
MEMBER_HEADER = 60
NOT_CODE = (
    ".csv", ".gz", ".json", ".llir", ".log", ".ncu-rep", ".nsys-rep", ".parquet", ".py", ".sqlite", ".ttgir", ".ttir",
    ".txt", ".zst",
)  # fmt: skip
"""Endings of file names that are skipped in a folder."""
PROFILED = b"==PROF=="
"""Beginning of ncu's log lines."""
LONGEST_LOG = 1 << 22
"""Bytes of a text that are searched for output of ptxas: a build prints much before it."""
BEGINNINGS = (MAGIC, FATBIN, ARCHIVE)


@dataclass(frozen=True)
class FoundKernel:
    """A kernel, its file, and the index of its image in the file.

    `closed_library` names the NVIDIA library whose licence forbids disassembly; "" for all other code.
    """

    resources: KernelResources
    path: str
    image: int
    closed_library: str = ""


@dataclass
class CodeReading:
    """What a reading found beside compiled kernels.

    `files`: number of files read. `ptx`: (file, kernel) pairs. `damaged`: a text per damaged file or image.
    `skipped_images`: number of images of an unknown kind.
    """

    files: int = 0
    ptx: list[tuple[str, PtxKernel]] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    skipped_images: int = 0


def holds_code(path: Path) -> bool:
    """True for a file whose first bytes are those of an ELF file, an archive, a fat binary or PTX."""
    return _begins_as_code(_first_bytes(path, MOST_BEGINNING))


def holds_code_or_print(path: Path) -> bool:
    """True for a file with code, or a text with resources printed by ptxas or cuobjdump, but no log lines of ncu."""
    head = _first_bytes(path, MOST_BEGINNING)
    if _begins_as_code(head):
        return True
    text = b"" if b"\0" in head else _first_bytes(path, LONGEST_LOG)
    return any(word in text for word in resource_usage_text.WORDS) and PROFILED not in text


def _begins_as_code(head: bytes) -> bool:
    return head.startswith(BEGINNINGS) or is_ptx(head)


def _first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file; b"" for a pipe, a file below `SMALLEST` bytes, or one that cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size < SMALLEST:
            return b""
        with path.open("rb") as stream:
            return stream.read(count)
    except OSError:
        return b""


def code_files(path: Path) -> Iterator[Path]:
    """The file itself; for a folder, the files with code in it and its subfolders, sorted by name (of texts, PTX)."""
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
    """Yield the compiled kernels of a file or folder, file by file; `progress` is called with each file's path.

    PTX kernels go to `reading.ptx`; damaged files and images are skipped and go to `reading.damaged`. Raises
    `NcuBenchError` if `path` does not exist, or is a file that cannot be read or, after its kernels, is damaged.
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
    """The images of a fat binary, of the sections of a host program or its objects, or a cubin as its one image."""
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
    """Begin and end of each ELF file in an archive of objects; of the whole file if it is no archive.

    Source: the common format of `ar`: headers of 60 bytes, with the size of the member in decimal from byte 48 on.
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
    """A function that adds threads per block and dynamic shared memory from Triton's metadata beside a cubin."""
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
    """The cubin of a kernel, read again; None if the kernel is known only from output of ptxas, or the file changed.

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
