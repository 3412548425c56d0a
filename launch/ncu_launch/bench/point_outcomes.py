"""How the measuring of a point of a sweep can end: of those that only read sweeps, nobody needs what measures them."""

OK, OUT_OF_MEMORY, FAILED, CRASHED, TIMED_OUT = ("ok", "out of memory", "failed", "crashed", "timed out")
"""Failed is an error that the program reports, crashed a signal that ended it."""
