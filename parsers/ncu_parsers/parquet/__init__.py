"""Read and write Parquet files of launches and other tables: validated on opening, written atomically."""
