"""The registry of columns: what each column of a table is called, holds and means, whichever command shows it."""
