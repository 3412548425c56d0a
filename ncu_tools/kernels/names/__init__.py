"""Parse kernel names: normalised spelling, short title, readable name, key, and category."""
