"""The commands that measure or ask a machine, a file for each."""
