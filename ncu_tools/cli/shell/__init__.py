"""What the shell sees of the program itself: completion of words, errors as JSON, and what is in the folder."""

COMPLETE = "_NCU_BENCH_COMPLETE"
"""The variable by which a shell asks click for completions."""
