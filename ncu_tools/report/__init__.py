"""Telling: a table of results -> text, JSON, CSV or Markdown; a roofline -> a picture."""
