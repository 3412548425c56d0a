"""Values by instruction, with the lines of source that they come from, and counters over time."""
