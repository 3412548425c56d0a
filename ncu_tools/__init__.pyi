"""What `ncu_tools` has for programs that check types; `__init__.py` imports it when it is used."""

from ncu_launch.workload.user_ranges import range as range

from ncu_tools.profiling.from_python import estimate as estimate
from ncu_tools.profiling.from_python import expected_times as expected_times
from ncu_tools.profiling.from_python import load as load
from ncu_tools.profiling.from_python import profile as profile
from ncu_tools.profiling.kernel_decorator import kernel as kernel
