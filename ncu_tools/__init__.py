"""Analysis of launches: tables in; tables, text and pictures out. From Python: `load`, `profile`, `estimate`, ..."""

from ncu_launch.version import VERSION as __version__  # noqa: F401, N811  for others to read

from ncu_tools.lazy_names import __dir__ as __dir__
from ncu_tools.lazy_names import __getattr__ as __getattr__
