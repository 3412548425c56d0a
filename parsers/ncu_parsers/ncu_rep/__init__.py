"""Binary reports of ncu (.ncu-rep): launches, metrics, rules, instructions, code. README.md beside this has an example.

`WINGS` in `tests/whole/test_house.py` lists all that it imports from the rest of the project. Names are imported on
first use, since importing protobuf takes longer than reading a small text report.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncu_parsers.ncu_rep.contents import contents_of as contents_of
    from ncu_parsers.ncu_rep.instances import instance_tables as instance_tables
    from ncu_parsers.ncu_rep.instructions.counts_by_address import files_in as files_in
    from ncu_parsers.ncu_rep.instructions.counts_by_address import read_binary_instructions as read_binary_instructions
    from ncu_parsers.ncu_rep.instructions.time_series import TimeSeries as TimeSeries
    from ncu_parsers.ncu_rep.instructions.time_series import time_series as time_series
    from ncu_parsers.ncu_rep.launch_values import ReportedLaunch as ReportedLaunch
    from ncu_parsers.ncu_rep.launch_values import launches_in as launches_in
    from ncu_parsers.ncu_rep.metric_units import unit_of as unit_of
    from ncu_parsers.ncu_rep.sass.sass_text import Instruction as Instruction
    from ncu_parsers.ncu_rep.sass.sass_text import parse_instruction as parse_instruction
    from ncu_parsers.ncu_rep.source_code import ModuleCode as ModuleCode
    from ncu_parsers.ncu_rep.source_code import code_in as code_in

MAGIC = b"NVR\0"
"""The first bytes of a binary report."""

_MODULES = {
    "contents_of": "contents", "instance_tables": "instances", "files_in": "instructions.counts_by_address",
    "read_binary_instructions": "instructions.counts_by_address", "TimeSeries": "instructions.time_series",
    "time_series": "instructions.time_series", "ReportedLaunch": "launch_values", "launches_in": "launch_values",
    "unit_of": "metric_units", "Instruction": "sass.sass_text", "parse_instruction": "sass.sass_text",
    "ModuleCode": "source_code", "code_in": "source_code",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"{__name__} has no {name}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
