"""Keep the code of the GPU kernels that a process ran, beside its results: Triton's cubins, and the user's libraries.

`compare` of two runs then shows how the code of their kernels changed (`ncu_tools.binaries`).
"""

from __future__ import annotations

import gc
import hashlib
import json
import mmap
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.run_files import CODE, LOGS

MAPS = Path("/proc/self/maps")
"""The files that Linux has mapped into this process."""
FATBIN_SECTION = b".nv_fatbin"
LARGEST_LIBRARY = 1 << 26
MOST_KERNELS = 512
_NO_NAME = re.compile(r"\W+")
_METADATA = ("num_warps", "num_ctas", "shared")
"""Fields of Triton's metadata that determine how a kernel is launched."""


def keep_code(folder: Path) -> None:
    """Write the code that this process has loaded into a folder, which is created only if there is any.

    Stops without an error if a file cannot be read or written: the measurement is worth more than its code.
    """
    with suppress(OSError):
        for name, cubin, metadata in _triton_kernels():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / f"{name}.cubin", cubin)
            write_whole(folder / f"{name}.json", json.dumps(metadata).encode())
        for path in _own_libraries(MAPS.read_text("utf-8", "replace") if MAPS.is_file() else ""):
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)


def take_code(folder: Path, log: Path) -> None:
    """Copy the code that a point's process kept in `folder` to the run folder of its log, under the log's name."""
    kept = folder / CODE
    if kept.is_dir() and log.parent.name == LOGS:
        with suppress(OSError):
            shutil.copytree(kept, log.parent.parent / CODE / log.stem, dirs_exist_ok=True)


def _triton_kernels() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Name, cubin and metadata of the kernels that Triton compiled or loaded here, each code once; at most 512."""
    if "triton" not in sys.modules:
        return
    seen = set[str]()
    for one in gc.get_objects():
        if type(one).__name__ != "CompiledKernel" or not type(one).__module__.startswith("triton."):
            continue
        cubin = getattr(one, "kernel", None)
        if not isinstance(cubin, bytes) or len(seen) >= MOST_KERNELS:
            continue
        name = _NO_NAME.sub("_", str(getattr(one, "name", "kernel")))[:100]
        name = f"{name}.{hashlib.sha256(cubin).hexdigest()[:8]}"
        if name not in seen:
            seen.add(name)
            known = getattr(one, "metadata", None)
            yield (
                name,
                cubin,
                {key: getattr(known, key) for key in _METADATA if isinstance(getattr(known, key, None), int)},
            )


def _own_libraries(maps: str) -> Iterator[Path]:
    """The libraries with kernels among the mapped files, without libraries installed for Python or the system."""
    installed = (sys.base_prefix, "/usr/lib", "/lib")
    for name in dict.fromkeys(re.findall(r"\s(/\S.*\.so[\w.]*)$", maps, re.MULTILINE)):
        path = Path(name)
        if name.startswith(installed) or "site-packages" in path.parts or "dist-packages" in path.parts:
            continue
        with suppress(OSError, ValueError):
            if path.stat().st_size <= LARGEST_LIBRARY and _has_kernels(path):
                yield path


def _has_kernels(path: Path) -> bool:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(FATBIN_SECTION) >= 0
