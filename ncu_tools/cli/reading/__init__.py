"""The commands that read runs and reports, a file for each."""
