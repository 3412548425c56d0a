"""Levers on the time of a step, each with its saving by a replay of the step's graph."""
