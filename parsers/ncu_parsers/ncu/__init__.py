"""The pages that ncu prints: CSV and text."""
