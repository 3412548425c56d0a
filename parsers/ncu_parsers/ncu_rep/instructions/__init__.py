"""Values by instruction, with their source lines, and counters over time."""
