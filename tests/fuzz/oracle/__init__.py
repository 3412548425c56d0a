"""Wrong numbers without a word: a mutated file that is read gives the values of a slow reader on the same bytes.

    python -m tests.fuzz.oracle FORMAT --inputs 100000     (FORMAT: one of `formats.FORMATS`, or all)

The slow readers use the csv, json and sqlite3 modules, pyarrow, and a protobuf reader of forty lines; they share no code
with `ncu_parsers`. A mutation changes values, their order, units, names and whole rows, and one input in six also its bytes.
An input is right if each row has the slow reader's values; if the report says that lines were left out, its rows must be
among those of the slow reader. Everything else is a finding.
"""
