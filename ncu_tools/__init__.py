"""Analysis of kernel launches: tables in; tables, text and pictures out. `load` is the way in from a notebook."""

from ncu_tools.notebook import load as load

__version__ = "0.1.0"
