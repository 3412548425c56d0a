"""Further trace formats, a file for each: it returns an `Activity`, and a line in `parse/file_kinds.py` names it."""
