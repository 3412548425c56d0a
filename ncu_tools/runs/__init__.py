"""Runs loaded, selected and queried, whatever their size."""
