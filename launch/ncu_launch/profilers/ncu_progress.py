"""What a tool says while it runs, read from the file it writes: ncu with --log-file prints nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

INTERVAL_S = 0.3
READ_AT_ONCE = 64 * 1024


@contextmanager
def following(file: Path, heard: Callable[[str], None]) -> Iterator[None]:
    """Tell `heard` the newest line of ncu's messages (`==PROF== ...`) in a growing file, until the block ends."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(file, heard, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(file: Path, heard: Callable[[str], None], ended: threading.Event) -> None:
    place = 0
    while not ended.wait(INTERVAL_S):
        with suppress(OSError), file.open("rb") as stream:
            # Only the end matters: the lines between are progress that has passed.
            place = max(place, file.stat().st_size - READ_AT_ONCE)
            stream.seek(place)
            read = stream.read(READ_AT_ONCE)
            whole = read[: read.rfind(b"\n") + 1]
            place += len(whole)
            said = [line for line in whole.splitlines() if line.startswith(b"==")]
            if said:
                heard(said[-1].decode("utf-8", "replace"))
