"""The levers, a function each: when it applies, what it leaves of a kernel's work, and the numbers that say so."""
