"""Output: tables as text, JSON, CSV or Markdown; rooflines as pictures."""
