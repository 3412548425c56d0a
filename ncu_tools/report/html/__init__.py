"""Runs as one HTML page that opens anywhere."""
