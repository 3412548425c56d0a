"""Run folders and their files, which are written atomically."""
