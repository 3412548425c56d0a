"""Contents of a report, whatever its format: launches, metrics, units, names."""
