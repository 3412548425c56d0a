"""A whole profile: collect, read, and run again where necessary."""
