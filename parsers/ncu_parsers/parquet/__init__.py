"""Parquet files of launches, opened with care and written whole."""
