"""The levers, one function each: whether it applies, the work that it leaves of each resource, and the evidence."""
