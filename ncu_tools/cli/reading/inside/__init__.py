"""The commands that look inside one kernel, one file each."""
