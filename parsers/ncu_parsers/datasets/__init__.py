"""Parquet datasets of many reports, on disk or at a URL, and the processes that work on them."""
