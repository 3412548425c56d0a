"""Analysis of kernel launches: tables in; tables, text and pictures out."""

__version__ = "0.1.0"
