"""Parquet datasets of many reports, on disk or at a URL."""
