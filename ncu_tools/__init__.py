"""Analysis of kernel launches: tables in; tables, text and pictures out. `load` is the way in from a notebook."""

from ncu_launch.version import VERSION

from ncu_tools.report.notebook.profiled_run import load as load

__version__ = VERSION
