"""Outcomes of measuring a point of a sweep. Separate from the code that measures, which readers need not import."""

OK, OUT_OF_MEMORY, FAILED, CRASHED, TIMED_OUT = ("ok", "out of memory", "failed", "crashed", "timed out")
"""`FAILED`: the program reported an error, or ended without a result. `CRASHED`: a signal ended it."""

DISAGREES, NOT_COMPARED = "disagrees", "not compared"
"""Outcomes of a function timed against another: results differ, or cannot be compared."""
