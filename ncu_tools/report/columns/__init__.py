"""The registry of columns: title, content and meaning of each column, whichever command shows it."""
