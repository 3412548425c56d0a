"""Run folders and the files in them, each written to a temporary name and renamed."""
