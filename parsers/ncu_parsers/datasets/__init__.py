"""Parquet datasets of many reports, on disk or behind a URL."""
