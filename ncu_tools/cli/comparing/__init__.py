"""The commands that compare runs, ranks or points of a sweep, one file each."""
