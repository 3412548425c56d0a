"""The stretches of long pages -> launches, parsed beside the recognising of the lines that follow."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from ncu_parsers.streaming.launch_pipeline import Flow
from ncu_parsers.streaming.line_accounting import NotCertain
from ncu_parsers.streaming.row_batch import Stretch
from ncu_parsers.streaming.row_batch_reader import ReadStretch, read_stretch

STRETCHES_AHEAD = 1


class LongPages:
    """The long pages of a file, of which one stretch after another comes."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._decimal = "."
        self._queue: deque[tuple[Stretch, Future[ReadStretch]]] = deque()

    def take(self, stretch: Stretch) -> None:
        """Take in the next stretch. Raises `Unexpected` where one before it was not what it seemed to be."""
        settled = all(self.flow.page_state(page).locale.settled for _, page in stretch.pages)
        future = self.flow.pool.submit(read_stretch, stretch, self._decimal, count_votes=not settled)
        self._queue.append((stretch, future))
        while len(self._queue) > STRETCHES_AHEAD:
            self._collect()

    def finish(self) -> None:
        """Take in what is on its way; raises as `take` does."""
        while self._queue:
            self._collect()

    def _collect(self) -> None:
        stretch, future = self._queue.popleft()
        found = future.result()
        if not self._accepts(found):
            self._decimal = "," if found.decimal == "." else "."
            found = read_stretch(stretch, self._decimal)
            if not self._accepts(found):
                raise NotCertain("its numbers contradict each other")
        columns = found.columns
        for begin, end, page in zip(found.begins, [*found.begins[1:], columns.rows], found.pages, strict=True):
            assert columns.processes is not None  # noqa: S101 - Layout.of() asks for them
            self.flow.check_new_ids(columns.processes[begin:end], columns.ids[begin:end])
            oddities = self.flow.page_state(page.number).oddities
            oddities.absent.update(page.absent)
            oddities.alive += page.alive
            for name, values in page.conflicts.items():
                oddities.conflicts.setdefault(name, values)
        for name, label in found.labels.items():
            self.flow.report.labels.setdefault(name, label)
        self.flow.keep(columns)

    def _accepts(self, found: ReadStretch) -> bool:
        """Whether its numbers were read as those of its pages should be."""
        return all(self.flow.page_state(page.number).locale.accepts(page.votes, found.decimal) for page in found.pages)
