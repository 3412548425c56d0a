"""FLOPs and least bytes of operators by their shapes: one table of formulas. README.md beside this has an example.

`work_of(Call(...))` returns the work of one call. Only errors and the TOML reader are imported from the rest of the
project.
"""

from ncu_launch.operators.backward_calls import backward_call as backward_call
from ncu_launch.operators.calls import UNRECORDED as UNRECORDED
from ncu_launch.operators.calls import Call as Call
from ncu_launch.operators.calls import Formula as Formula
from ncu_launch.operators.calls import Tensor as Tensor
from ncu_launch.operators.calls import UnknownWork as UnknownWork
from ncu_launch.operators.table import OperatorWork as OperatorWork
from ncu_launch.operators.table import contraction_flops as contraction_flops
from ncu_launch.operators.table import formula_of as formula_of
from ncu_launch.operators.table import work_of as work_of
from ncu_launch.operators.units import contraction_unit as contraction_unit
from ncu_launch.operators.user_formulas import formulas_in as formulas_in
