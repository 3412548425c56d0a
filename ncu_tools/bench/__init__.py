"""Sweeps summarised, compared and fitted."""
