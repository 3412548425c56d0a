"""An engine of processes on this machine, which end when this one ends, for whatever reason."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from ncu_launch.errors import NcuBenchError

from ncu_parsers.datasets.engine import Engine, InOrder, Item, Result, attempted
from ncu_parsers.sources.memory import limit, process_wide, take_share

SAFE_PATH = "PYTHONSAFEPATH"


@contextmanager
def child_processes(count: int) -> Iterator[Engine]:
    """An engine of `count` processes, which start with the first call of `map` and end with the block.

    Work runs in this process instead if `count` is below 2 or the system has no semaphores, as in some containers.
    """
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    lifeline, our_end = context.Pipe(duplex=False)
    try:
        pool = ProcessPoolExecutor(count, context, _begin, (lifeline, limit(), count)) if count > 1 else None
    # Python was built without semaphores, the system has too few, or /dev/shm is missing.
    except (ImportError, NotImplementedError, OSError):
        pool = None
    try:
        yield InOrder() if pool is None else ChildProcesses(pool)
    except BaseException:
        our_end.close()
        raise
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        our_end.close()
        lifeline.close()


class ChildProcesses:
    """Maps a function over items in the processes of a pool."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result | NcuBenchError]:
        """As in `Engine`; the processes start working on the items at once."""
        with hide_current_folder(), block_interrupts():
            running = [self._pool.submit(attempted, function, item) for item in items]
        return map(_answer, running)


def _answer(running: Future[Result | NcuBenchError]) -> Result | NcuBenchError:
    try:
        return running.result()
    except BrokenProcessPool:
        return NcuBenchError("A process that this one had started was ended.", "It may have run out of memory.")


def _begin(lifeline: Connection, whole: int, processes: int) -> None:
    take_share(whole, processes)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """End this process when its parent closes the connection or dies."""
    try:
        lifeline.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)


# ------------------------------------------------------------------------------------------ what processes begin with


@process_wide
def hide_current_folder() -> Callable[[], None]:
    """Within the block, child processes start without the current folder, which may contain a json.py, on sys.path.

    Effective from Python 3.11 on.
    """
    put_back = environment_now([SAFE_PATH])
    os.environ[SAFE_PATH] = "1"
    return put_back


def environment_now(names: Iterable[str]) -> Callable[[], None]:
    """Return a function that restores the current values of these environment variables."""
    before = {name: os.environ.get(name) for name in names}

    def put_back() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    return put_back


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Start processes in the block that ignore Ctrl-C, which a terminal sends to all; this process gets it after the
    block.

    The same holds for processes that threads started in the block start later. SIGTERM is delayed too.
    """
    with _handled_later():
        if not hasattr(signal, "pthread_sigmask"):
            yield
            return
        resource_tracker.ensure_running()  # started inside, it would unblock Ctrl-C
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handled_later() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until after the block: a child prints a traceback if its parent leaves while starting
    it.

    Blocking the signals is not enough: another thread may receive one, and Python then handles it in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread runs handlers
        return
    came: list[int] = []
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    raising = {number: handler for number, handler in usual.items() if callable(handler)}
    for number in raising:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)
