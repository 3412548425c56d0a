"""Parse reports into one table, a Parquet file or a dataset."""
