"""An engine that distributes work on many reports by dask: on this machine, or by a running scheduler of any cluster.

dask is an extra, imported on demand. A worker that dies is replaced and its work repeated; an item on which several
workers die becomes an error. dask also blames items that a worker had not begun, or whose result it had not sent: items
given up that way are retried once, when no other item is left to kill their worker. Workers need ncu-bench and the same
files or URLs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import islice
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ncu_launch.errors import NcuBenchError
from ncu_launch.version import VERSION

from ncu_parsers.datasets import dask_worker_preload
from ncu_parsers.datasets.engine import attempted, cores
from ncu_parsers.datasets.process_engine import SAFE_PATH, block_interrupts, environment_now, hide_current_folder
from ncu_parsers.sources import memory
from ncu_parsers.sources.reading_ahead import beside_others

Item = TypeVar("Item")
Result = TypeVar("Result")

Placement = dict[str, Any]
"""Keyword arguments of dask's `Client.submit` that restrict which workers take an item: workers or resources."""

LOCAL = "local"
SECONDS_TO_ANSWER = 15
ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
SET_BY_NANNIES = ("PYTHONHASHSEED", "__DASK_PARENT_PID")
"""Environment variables that dask's nannies set beyond those in `ENVIRONMENT`."""
SLOW_HEAP = "MALLOC_TRIM_THRESHOLD_"
"""dask sets it so that workers return freed memory at once, which makes parsing a third slower."""
WORKER_LOST_TIMEOUT = "distributed.deploy.lost-worker-timeout"
"""After this time dask drops a dead worker for good, even if its nanny has just begun to restart it."""
MANY_ITEMS, TASKS_OF_A_WORKER = 4, 32
"""Most items per task, and tasks per worker to aim for: dask spends about 2 ms on each task."""
AHEAD = 1000
"""Most items submitted at a time: results wait at the scheduler until all earlier results have arrived."""


@contextmanager
def dask_engine(where: str) -> Iterator[DaskEngine]:
    """The engine that `where` names: `local`, the address of a scheduler, or the JSON file that it wrote.

    Raises `NcuBenchError` if dask is not installed or no scheduler answers.
    """
    try:
        # Ctrl-C in the middle of an import may surface as another error.
        with hide_current_folder(), block_interrupts():
            import distributed
    except ImportError as error:
        raise NcuBenchError(
            "--dask needs dask's schedulers, which could not be imported.", f"They are an extra ({error}).",
            "Install them with: pip install '.[dask]'",
        ) from error  # fmt: skip
    with _cluster(where) as address, _client(where, address, distributed) as client:
        yield DaskEngine(client)


@contextmanager
def _cluster(where: str) -> Iterator[Any]:
    """Address or cluster for a dask client; `local` starts one worker process per core, which end with the block."""
    if where != LOCAL:
        yield where
        return
    with local_cluster(cores()) as cluster:
        yield cluster


@contextmanager
def local_cluster(workers: int) -> Iterator[Any]:
    """Start workers on this machine; end them, and remove their temporary folders, with the block.

    Workers ignore Ctrl-C, which a terminal sends to all processes: each would print a traceback and abandon its task.
    """
    import dask
    import distributed

    usual = dask.config.get(ENVIRONMENT)
    own = {SAFE_PATH: "1", memory.SETTING: str(memory.limit())}
    variables = {**{name: usual[name] for name in usual if name != SLOW_HEAP}, **own}
    with (
        TemporaryDirectory(prefix="ncu-bench-dask-", ignore_cleanup_errors=True) as folder,
        _restored_environment([*variables, *SET_BY_NANNIES]),
        dask.config.set({WORKER_LOST_TIMEOUT: "1 day"}),
    ):
        settings = {ENVIRONMENT: variables, "temporary-directory": folder}
        with dask.config.set(settings), hide_current_folder(), block_interrupts():
            cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs="CRITICAL",
                preload=[dask_worker_preload.__name__],
            )  # fmt: skip
        with cluster:
            yield cluster


@contextmanager
def _restored_environment(names: Sequence[str]) -> Iterator[None]:
    """Restore environment variables after the block: nannies run in this process and set them for their workers."""
    put_back = environment_now(names)
    try:
        yield
    finally:
        put_back()


@contextmanager
def _client(where: str, address: Any, distributed: Any) -> Iterator[Any]:
    named = {"scheduler_file": address} if isinstance(address, str) and address.endswith(".json") else {}
    try:
        client = distributed.Client(
            **(named or {"address": address}), timeout=SECONDS_TO_ANSWER, set_as_default=False
        )  # fmt: skip
    except (OSError, ValueError, TypeError) as error:
        raise NcuBenchError(
            f"No dask scheduler answers at {where}: {' '.join(str(error).split()) or type(error).__name__}.",
            "It may not run, or not be reached from here.",
            "Start one with: dask scheduler, or use --dask local",
        ) from error
    with client:
        yield client


class GivenUp(NcuBenchError):
    """Several workers died while they had this item."""


class DaskEngine:
    """Work on items by the workers of a dask client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result | NcuBenchError]:
        """See `Engine.map`. Raises `NcuBenchError` if the scheduler is lost, or workers lack this ncu-bench."""
        size = self._items_of_a_task(len(items))
        groups = (items[begin : begin + size] for begin in range(0, len(items), size))
        submitted = ((group, self._submit(function, group)) for group in groups)
        ahead = AHEAD // size
        waiting = deque(islice(submitted, ahead))
        try:
            while waiting:
                group, future = waiting.popleft()
                results = _results(group, future)
                future.release()
                if isinstance(results, GivenUp):
                    behind = [(group, _results(group, future)) for group, future in waiting]
                    waiting.clear()
                    yield from self._judged(function, [(group, results), *behind])
                else:
                    yield from results
                waiting.extend(islice(submitted, ahead - len(waiting)))
        finally:
            self._client.cancel([future for _, future in waiting])

    def as_finished(
        self, function: Callable[[Item], Result], placed: Sequence[tuple[Item, Placement]]
    ) -> Iterator[tuple[Item, Result | NcuBenchError]]:
        """Yield (item, result) as results arrive; when the caller stops early, the other items are cancelled.

        Raises as `map` does.
        """
        from distributed import as_completed

        waiting = {self._submit(function, [item], **where): (item, where) for item, where in placed}
        suspects = []
        try:
            with _losses():
                for future in as_completed(list(waiting), loop=self._client.loop):
                    item, where = waiting.pop(future)
                    found = _results([item], future)
                    if isinstance(found, GivenUp):
                        suspects.append((item, where))
                    else:
                        yield item, found[0]
            for item, where in suspects:
                yield item, self._alone(function, item, **where)
        finally:
            self._client.cancel(list(waiting))

    def on_each_worker(self, function: Callable[[Any], Result]) -> dict[str, Result]:
        """The result of `function` on each current worker, by the worker's address. Raises as `map` does."""
        with _losses():
            return dict(self._client.run(_asked, function, VERSION))

    def _items_of_a_task(self, items: int) -> int:
        with _losses():
            workers: int = sum(self._client.nthreads().values())
        return max(1, min(MANY_ITEMS, items // (TASKS_OF_A_WORKER * max(1, workers))))

    def _judged(
        self, function: Callable[[Item], Result], found: Iterable[tuple[Sequence[Item], Any]]
    ) -> Iterator[Result | NcuBenchError]:
        """Yield the results of all submitted items; retry items that were given up."""
        for group, results in found:
            if isinstance(results, GivenUp):
                yield from (self._alone(function, item) for item in group)
            else:
                yield from results

    def _alone(self, function: Callable[[Item], Result], item: Item, **where: Any) -> Result | NcuBenchError:
        """Retry an item that was given up while no other item is submitted."""
        future = self._submit(function, [item], **where)
        try:
            results: Any = _results([item], future)
            return results if isinstance(results, GivenUp) else results[0]
        finally:
            future.release()

    def _submit(self, function: Callable[[Item], Result], items: Sequence[Item], **where: Any) -> Any:
        return self._client.submit(_work, function, list(items), VERSION, pure=False, **where)


def _results(items: Sequence[object], future: Any) -> Any:
    """The results of `_work` for these items, or the `GivenUp` error of their task."""
    from distributed.scheduler import KilledWorker

    try:
        with _losses():
            return future.result()
    except KilledWorker as error:
        return GivenUp(
            f"{_named(items[0])} was given up: {error.allowed_failures + 1} dask workers died of it in a row.",
            "Memory may have run out.", "Give each worker more of it, or do this one by itself, without --dask.",
        )  # fmt: skip


@contextmanager
def _losses() -> Iterator[None]:
    """Raise `NcuBenchError` for dask's errors on a lost scheduler and on workers without this ncu-bench."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "deserializ" not in str(error):
            raise
        raise NcuBenchError(
            f"A dask scheduler or worker could not import what is to be run: {' '.join(str(error).split())}",
            "It has no ncu-bench, or another one than this.",
            f"Install ncu-bench {VERSION} in the environment of the scheduler and the workers.",
        ) from error
    except (OSError, CancelledError) as error:
        raise NcuBenchError(
            f"The dask scheduler was lost: {type(error).__name__}.",
            "It was stopped, or the connection broke.",
            "Start the same command again: what was written is written once.",
        ) from error


def _named(item: object) -> str:
    return ", ".join(map(str, item)) if isinstance(item, list) else str(item)


def _work(function: Callable[[Item], Result], items: Sequence[Item], release: str) -> list[Result | NcuBenchError]:
    """Run `function` on items in a worker; errors become results. Raises `ImportError` if the releases differ."""
    if release != VERSION:
        raise ImportError(f"the worker has ncu-bench {VERSION}, and was asked by {release}")
    with beside_others():
        return [attempted(function, item) for item in items]


def _asked(function: Callable[[Any], Result], release: str, dask_worker: Any) -> Result:
    """Run `function` on a worker itself, which dask passes as `dask_worker`."""
    if release != VERSION:
        raise ImportError(f"the worker has ncu-bench {VERSION}, and was asked by {release}")
    return function(dask_worker)
