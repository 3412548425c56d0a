"""Numbers in printed cells, many at once, and the compiled loops over every byte."""
