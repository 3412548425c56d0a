"""Load, select and query runs of any size."""
