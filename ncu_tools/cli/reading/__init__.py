"""The commands that read runs and reports, one file each."""
