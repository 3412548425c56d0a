"""The commands that look inside one kernel, a file for each."""
