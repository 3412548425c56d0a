"""The pages of ncu: CSV and text."""
