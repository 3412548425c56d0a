"""Sample reports and their generator; see README.md."""
