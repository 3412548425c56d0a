"""Follow ncu's progress messages in the file that it writes: with --log-file it prints nothing to stdout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

INTERVAL_S = 0.3
READ_AT_ONCE = 64 * 1024


@contextmanager
def following(file: Path, on_line: Callable[[str], None]) -> Iterator[None]:
    """Within the block, pass the newest message of ncu (`==PROF== ...`) in a growing file to `on_line`, every 0.3 s."""
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(file, on_line, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(file: Path, on_line: Callable[[str], None], ended: threading.Event) -> None:
    place = 0
    while not ended.wait(INTERVAL_S):
        with suppress(OSError), file.open("rb") as stream:
            # Only the newest message matters, so skip to the end of the file.
            place = max(place, file.stat().st_size - READ_AT_ONCE)
            stream.seek(place)
            read = stream.read(READ_AT_ONCE)
            whole = read[: read.rfind(b"\n") + 1]
            place += len(whole)
            messages = [line for line in whole.splitlines() if line.startswith(b"==")]
            if messages:
                on_line(messages[-1].decode("utf-8", "replace"))
