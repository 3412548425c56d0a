"""Files, archives and pipes that reports come from."""
