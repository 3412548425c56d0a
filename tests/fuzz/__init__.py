"""Mutated inputs for every parser: what comes out must be a right answer, or an error of the project with a reason.

    python -m tests.fuzz TARGET --inputs 100000     tries so many inputs (TARGET: one of `targets.TARGETS`, or all)

What was ever found stays in found/TARGET/, and tests/whole/test_fuzz.py reads it again. Inputs of nsys-cells, parquet-schema
and bench are choices that hold for the seeds of today: of those, keep the file that they build, under nsys-bytes,
parquet-bytes or bench.
"""
