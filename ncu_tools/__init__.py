"""Analysis of launches: tables in; tables, text and pictures out. From Python: `load`, `profile`, `estimate`, ..."""

from ncu_launch.version import VERSION as __version__  # noqa: F401, N811  for others to read
from ncu_launch.workload.user_ranges import range as range

from ncu_tools.profiling.from_python import estimate as estimate
from ncu_tools.profiling.from_python import expected_times as expected_times
from ncu_tools.profiling.from_python import load as load
from ncu_tools.profiling.from_python import profile as profile
from ncu_tools.profiling.kernel_decorator import kernel as kernel
