"""Read and write Parquet files of launches: validated on opening, written atomically."""
