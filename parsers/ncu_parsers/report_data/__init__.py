"""What a report holds, whatever its format: launches, metrics, units, names."""
