"""The tables of `timeline`."""
