"""python -m tests.nightly [PART]: list the parts, or go on with one where it was left, for at most 80 minutes.

Two chunks run at once. Every chunk that ends is in the account before the next begins, so that Ctrl-C and a lost machine
cost the chunks that were running. The exit status is 1 where something was found.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import date

from tests.nightly import account
from tests.nightly.account import Tried
from tests.nightly.parts import LEFT, Case, parts

MINUTES, LAST_MINUTES = 75, 5
"""No chunk begins after `MINUTES`; what runs `LAST_MINUTES` later is ended, and tried first by the next call."""


def main() -> int:
    """List the parts, or go on with one."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("part", nargs="?", choices=parts(), help="the part to go on with")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="begin no chunk after so many")
    parser.add_argument("--only", help="cases with this in their name")
    parser.add_argument("--at-once", type=int, default=2, help="chunks that run at the same time")
    asked = parser.parse_args()
    if asked.part is None:
        listed()
        return 0
    cases = [case for case in parts()[asked.part] if asked.only is None or asked.only in case.name]
    return go_on(cases, asked.minutes * 60, asked.at_once)


def listed() -> None:
    """Print each part with the chunks that were tried on this code."""
    known = account.load()
    print(f"python -m tests.nightly PART (code: {account.commit_of_code()})")
    for name, cases in parts().items():
        chunks = sum(case.chunks for case in cases)
        done = chunks - sum(len(waiting_chunks(case, known)) for case in cases)
        print(f"  {name:16} {len(cases):3} cases, {done} of {chunks} chunks tried")


def waiting_chunks(case: Case, known: dict[str, Tried]) -> list[int]:
    """The chunks of a case that were not tried on its code as it is."""
    tried = known.get(case.name)
    done = tried.chunks if tried is not None and account.is_as_it_was(tried.commit, case.code) else []
    return [chunk for chunk in range(case.chunks) if chunk not in done]


def go_on(cases: list[Case], seconds: float, at_once: int) -> int:
    """Try the chunks that were not tried on this code, case by case in turns, until the time is up."""
    known, deadline = account.load(), time.monotonic() + seconds
    waiting = [(chunk, case) for case in cases for chunk in waiting_chunks(case, known)]
    waiting.sort(key=lambda one: one[0])  # every case a chunk, before any case its second
    found = 0
    running: dict[Future[Tried], tuple[int, Case]] = {}
    with ThreadPoolExecutor(at_once) as pool:
        while waiting or running:
            while waiting and len(running) < at_once and time.monotonic() < deadline:
                chunk, case = waiting.pop(0)
                left = deadline + 60 * LAST_MINUTES - time.monotonic()
                running[pool.submit(_timed, case, chunk, left)] = chunk, case
            if not running:
                print(f"time is up: {len(waiting)} chunks are left for the next call", flush=True)
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                chunk, case = running.pop(done)
                if done.result().said == LEFT:
                    print(
                        f"{case.name} {chunk + 1}/{case.chunks}: {LEFT} after {done.result().seconds:.0f} s", flush=True
                    )
                    continue
                commit = account.commit_of_code(case.code)
                tried = replace(done.result(), commit=commit, day=date.today().isoformat())
                known = account.load()
                account.add(known, case.name, chunk, tried, case.code)
                account.save(known)
                found += tried.findings
                print(f"{case.name} {chunk + 1}/{case.chunks}: {tried.inputs} inputs, {tried.findings} findings, "
                      f"{tried.seconds:.0f} s {tried.said if tried.findings else ''}".rstrip(), flush=True)  # fmt: skip
    return int(found > 0)


def _timed(case: Case, chunk: int, seconds: float) -> Tried:
    began = time.monotonic()
    return replace(case.run(chunk, seconds), seconds=time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
