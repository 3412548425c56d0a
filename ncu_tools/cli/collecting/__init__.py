"""The commands that measure or query a machine, one file each."""
