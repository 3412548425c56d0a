"""Reports to one table, or to Parquet."""
