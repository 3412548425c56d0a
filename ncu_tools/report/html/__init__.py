"""Telling: runs as one HTML page that opens anywhere."""
