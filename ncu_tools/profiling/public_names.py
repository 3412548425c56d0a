"""The names that `ncu_tools` has for scripts and notebooks, from where they are (`ncu_tools.lazy_names`)."""

from ncu_launch.workload.user_ranges import range as range

from ncu_tools.profiling.from_python import estimate as estimate
from ncu_tools.profiling.from_python import expected_times as expected_times
from ncu_tools.profiling.from_python import load as load
from ncu_tools.profiling.from_python import profile as profile
from ncu_tools.profiling.kernel_decorator import kernel as kernel
