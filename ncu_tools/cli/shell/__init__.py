"""Interface to the shell: completion of words, errors as JSON, and the overview of a folder."""

COMPLETE = "_NCU_BENCH_COMPLETE"
"""The variable by which a shell requests completions from click."""
