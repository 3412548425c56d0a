"""The commands that compare runs, ranks or points of a sweep, a file for each."""
