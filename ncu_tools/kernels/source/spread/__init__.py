"""Distribution of a launch's counters over its time and over the units of the chip."""
