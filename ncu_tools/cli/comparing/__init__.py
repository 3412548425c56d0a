"""The commands that set runs, ranks or points of a sweep beside each other, a file for each."""
