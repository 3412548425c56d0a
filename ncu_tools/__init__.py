"""Analysis of launches: tables in; tables, text and pictures out. `load` and `profile` are the ways in from Python, and
`range` marks a part of a program."""

from ncu_launch.version import VERSION
from ncu_launch.workload.user_ranges import range as range

from ncu_tools.profiling.from_python import profile as profile
from ncu_tools.report.notebook.profiled_run import load as load

__version__ = VERSION
