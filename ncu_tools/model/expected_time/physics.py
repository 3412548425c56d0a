"""A formula of time with a few physical numbers, and how they are fitted to measured times.

A library chooses how to compute an operator (tiles, splits), so a formula gives the time of each choice, and the
operator takes the least. At the minimum the choice need not be differentiated (envelope theorem): a step of the fit
keeps each operator's choice and moves the numbers, which is why fits to thousands of times take a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncu_tools.model.expected_time.hardware import Hardware

Floats = NDArray[Any]
Work = Mapping[str, Floats]
"""Columns of operators: sizes, and bytes of their elements."""

AT_ONCE = 400
"""Number of operators whose choices are compared at once, so that arrays stay in CPU caches."""
SMALL = 0.1
"""Relative error above which errors count linearly, not by their square, so that outliers have little weight."""
STEP = 0.02
PRIOR = 0.02


class PhysicalNumber(NamedTuple):
    """A number of a formula: the start of fits, its bounds, and its `meaning` with the unit."""

    start: float
    least: float
    most: float
    meaning: str


class Physics(NamedTuple):
    """A kind of operators: its numbers by name, the choices of libraries (one row each), and the formula of time.

    `parts(hardware, work, numbers, choice)` returns the us of the whole and of its parts by name; columns of `work` and
    `choice` must be broadcastable. `held` is how strongly fits hold numbers to their start.
    """

    kind: str
    numbers: dict[str, PhysicalNumber]
    choices: Floats
    parts: Callable[[Hardware, Work, Sequence[float], Sequence[Floats]], tuple[Floats, dict[str, Floats]]]
    held: float = PRIOR

    @property
    def start(self) -> Floats:
        """Logarithms of the numbers at which fits start."""
        return np.log([number.start for number in self.numbers.values()])

    def bounds(self) -> tuple[Floats, Floats]:
        """Smallest and largest logarithms of the numbers."""
        return (
            np.log([number.least for number in self.numbers.values()]),
            np.log([number.most for number in self.numbers.values()]),
        )

    def at(self, hardware: Hardware, work: Work, logs: Floats, choice: NDArray[np.intp]) -> Floats:
        """Microseconds of each operator computed with the given choice."""
        numbers = [float(value) for value in np.exp(logs)]
        return self.parts(hardware, work, numbers, list(self.choices[choice].T))[0]

    def best(self, hardware: Hardware, work: Work, logs: Floats) -> tuple[Floats, NDArray[np.intp]]:
        """The least us of each operator, and the index of the choice that takes them."""
        numbers = [float(value) for value in np.exp(logs)]
        choices = [column[None, :] for column in self.choices.T]
        size = len(next(iter(work.values())))
        found, chosen = np.empty(size, np.float32), np.empty(size, np.intp)
        for begin in range(0, size, AT_ONCE):
            rows = slice(begin, begin + AT_ONCE)
            some = {name: column[rows, None] for name, column in work.items()}
            times = self.parts(hardware, some, numbers, choices)[0]
            chosen[rows] = times.argmin(1)
            found[rows] = times[np.arange(len(times)), chosen[rows]]
        return found, chosen


class TimedOperators(NamedTuple):
    """Operators measured on one machine, with their times in us."""

    hardware: Hardware
    work: Work
    time_us: Floats


def robust(errors: Floats) -> Floats:
    """The weight of each error: 1 for small ones, decreasing with size."""
    return 1 / np.sqrt(1 + (errors / SMALL) ** 2)


def _loss(errors: Floats) -> float:
    return float(np.sum(np.sqrt(1 + (errors / SMALL) ** 2) - 1))


def fitted(
    physics: Physics, measured: TimedOperators, start: Floats, prior: Floats | None = None,
    weight: Floats | float | None = None, steps: int = 40,
) -> tuple[Floats, float]:  # fmt: skip
    """Fit the numbers to measured times by Levenberg-Marquardt; returns their logarithms and the loss.

    `weight` (default: `held` of the formula) holds each logarithm to that of `prior` (default: the start of fits),
    which decides if there are few times.
    """
    hardware, work, times = measured
    least, most = physics.bounds()
    prior = physics.start if prior is None else prior
    target = np.log(times).astype(np.float64)
    weights = np.broadcast_to(np.asarray(physics.held if weight is None else weight, np.float64), prior.shape)

    def judged(logs: Floats) -> tuple[Floats, NDArray[np.intp], float]:
        found, choice = physics.best(hardware, work, logs)
        errors = np.log(found).astype(np.float64) - target
        return errors, choice, _loss(errors) + float(np.sum(weights * (logs - prior) ** 2))

    logs, damping = np.clip(start, least, most), 1e-2
    errors, choice, loss = judged(logs)
    for step in range(steps):
        slopes = _slopes(physics, measured, logs, choice)
        each = robust(errors) / SMALL**2
        curved = slopes.T @ (each[:, None] * slopes) + np.diag(2 * weights)
        down = slopes.T @ (each * errors) + 2 * weights * (logs - prior)
        better = None
        for _ in range(6):
            move = -np.linalg.solve(curved + damping * np.diag(np.diag(curved)), down)
            tried = np.clip(logs + np.clip(move, -0.7, 0.7), least, most)
            found = judged(tried)
            if found[2] < loss:
                better, damping = tried, max(damping / 4, 1e-5)
                break
            damping *= 5
        if better is None:
            break
        gain, logs, (errors, choice, loss) = loss - found[2], better, found
        if step > 5 and gain < 1e-3 * loss:
            break
    return logs, loss


def _slopes(physics: Physics, measured: TimedOperators, logs: Floats, choice: NDArray[np.intp]) -> Floats:
    """Derivatives of the logarithm of each time by the logarithm of each number, shape (times, numbers)."""
    here = np.log(physics.at(measured.hardware, measured.work, logs, choice)).astype(np.float64)
    slopes = np.empty((len(here), len(logs)))
    for place in range(len(logs)):
        moved = logs.copy()
        moved[place] += STEP
        there = np.log(physics.at(measured.hardware, measured.work, moved, choice))
        slopes[:, place] = (there - here) / STEP
    return slopes


def fitted_from_several(physics: Physics, measured: TimedOperators, starts: int = 4, seed: int = 0) -> Floats:
    """The best of several fits: one from the usual start, the others from random ones around it."""
    drawn = np.random.default_rng(seed)
    places = [physics.start + (drawn.normal(0, 0.7, len(physics.start)) if at else 0) for at in range(starts)]
    return min((fitted(physics, measured, place) for place in places), key=lambda found: found[1])[0]
