"""A whole profile: collect, read, and run again if necessary."""
