"""The tables of `compare`."""
