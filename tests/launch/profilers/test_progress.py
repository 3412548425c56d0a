"""Progress messages of the tool are passed on while its file grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ncu_launch.profile.collect import following

PATIENCE_S = 10


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_the_newest_message_of_a_growing_file_is_passed_on_without_rows(tmp_path: Path) -> None:
    file, messages = tmp_path / "ncu.csv", list[str]()
    with following(file, messages.append):
        file.write_bytes(b'==PROF== Profiling "gemm" - 0: 0%')
        with file.open("ab") as stream:
            stream.write(b'....100% - 8 passes\n"ID","Kernel Name"\n==PROF== half a li')
            stream.flush()
            assert until(lambda: bool(messages))
            assert messages == ['==PROF== Profiling "gemm" - 0: 0%....100% - 8 passes']
            stream.write(b'ne\n"0","gemm"\n')
            stream.flush()
            assert until(lambda: len(messages) > 1)
    assert messages[1:] == ["==PROF== half a line"]


def test_a_file_that_never_appears_is_no_error(tmp_path: Path) -> None:
    messages = list[str]()
    with following(tmp_path / "none.csv", messages.append):
        time.sleep(0.4)
    assert messages == []
