"""How numbers are written, and statistics."""
