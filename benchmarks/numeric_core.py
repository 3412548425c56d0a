"""The numeric core: code whose output a person or a gate acts on, and the tests that must notice a mistake in it."""

from __future__ import annotations

DERIVED, CEILINGS, COMPARE = "tests/parsers/derived", "tests/tools/ceilings", "tests/tools/compare"
MATCHING = "tests/tools/kernels/matching"
KERNELS, DIAGNOSIS = "tests/tools/kernels", "tests/tools/diagnosis"
OPERATORS, ADVICE = "tests/launch/operators", "tests/tools/advice"
TIMELINE, HISTORY = "tests/tools/timeline", "tests/tools/history"
CORE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "flops": (
        ("parsers/ncu_parsers/derived/flops.py", "parsers/ncu_parsers/derived/measures.py",
         "parsers/ncu_parsers/derived/*opcode*.py"),
        (f"{DERIVED}/test_flops.py", f"{DERIVED}/test_every_chip.py", f"{DERIVED}/test_measures.py",
         f"{DERIVED}/test_opcode_flops.py", f"{DERIVED}/test_tensor_opcodes.py",
         "tests/parsers/ncu_rep/test_instruction_flops.py"),
    ),
    "ceilings": (
        ("ncu_tools/ceilings/ceilings.py", "ncu_tools/ceilings/memory_clock.py",
         "ncu_tools/ceilings/device_attributes.py", "ncu_tools/ceilings/launch_devices.py",
         "ncu_tools/ceilings/work_by_unit.py", "ncu_tools/ceilings/above_ceiling.py"),
        (f"{CEILINGS}/test_ceilings.py", f"{CEILINGS}/test_ceiling_sources.py", f"{CEILINGS}/test_memory_clock.py",
         f"{CEILINGS}/test_device_attributes.py", f"{CEILINGS}/test_launch_devices.py",
         f"{CEILINGS}/test_work_by_unit.py", f"{CEILINGS}/test_flags.py", f"{CEILINGS}/test_machines.py",
         f"{KERNELS}/test_analysis.py"),
    ),
    "levels": (
        ("ncu_tools/ceilings/levels.py",),
        (f"{CEILINGS}/test_levels.py", f"{CEILINGS}/test_ceilings.py",
         "tests/tools/roofline/test_instruction_roofline.py"),
    ),
    "diagnosis": (
        ("ncu_tools/kernels/diagnosis/*.py",),
        (f"{DIAGNOSIS}/test_diagnosis.py", f"{DIAGNOSIS}/test_diagnose.py", f"{DIAGNOSIS}/test_sums.py",
         f"{DIAGNOSIS}/test_diagnosis_sums.py", f"{DIAGNOSIS}/test_quantities.py", f"{DIAGNOSIS}/test_wording.py",
         f"{DIAGNOSIS}/test_rule_agreement.py"),
    ),
    "intervals": (
        ("ncu_tools/numbers/statistics.py", "ncu_tools/compare/per_launch.py", "ncu_tools/compare/comparison_sums.py"),
        ("tests/tools/numbers", f"{COMPARE}/test_per_launch.py", f"{COMPARE}/test_compare.py",
         f"{COMPARE}/test_same_work.py", f"{COMPARE}/test_compare_operators.py"),
    ),
    "units": (
        ("parsers/ncu_parsers/report_data/cell_text.py",),
        ("tests/parsers/report_data/test_units.py", "tests/parsers/report_data/test_csv_text.py",
         "tests/parsers/ncu/test_every_dialect_reads_back.py"),
    ),
    "matching": (
        ("ncu_tools/kernels/matching/*_*.py",),
        (f"{MATCHING}/test_kernel_pairs.py", f"{COMPARE}/test_run_works.py", f"{COMPARE}/test_per_launch.py",
         f"{COMPARE}/test_compare.py", f"{MATCHING}/test_launch_signatures.py", f"{COMPARE}/test_pair_evidence.py"),
    ),
    "gates": (
        ("ncu_tools/compare/gate.py", "ncu_tools/numbers/change.py"),
        (f"{COMPARE}/test_gates.py", f"{COMPARE}/test_compare.py", f"{COMPARE}/test_per_launch.py",
         f"{COMPARE}/test_layer_work.py"),
    ),
    "history": (
        ("ncu_tools/history/change_points.py", "ncu_tools/history/changes.py", "ncu_tools/history/causes.py",
         "ncu_tools/history/held.py", "ncu_tools/history/series.py"),
        (f"{HISTORY}/test_change_points.py", f"{HISTORY}/test_alarms_in_plain_python.py",
         f"{HISTORY}/test_placed_changes.py", f"{HISTORY}/test_moves.py", f"{HISTORY}/test_causes.py",
         f"{HISTORY}/test_held.py", f"{HISTORY}/test_held_numbers.py", f"{HISTORY}/test_series.py",
         f"{HISTORY}/test_history_numbers.py"),
    ),
    "join": (
        ("ncu_tools/kernels/matching/join.py",),
        (f"{MATCHING}/test_join.py", f"{MATCHING}/test_joined_counts.py"),
    ),
    "sums": (
        ("ncu_tools/kernels/kernel_sums.py",),
        (f"{KERNELS}/test_kernel_sums.py", f"{KERNELS}/test_rows_in_plain_python.py", f"{KERNELS}/test_analysis.py",
         f"{KERNELS}/test_bound_by_throughput.py"),
    ),
    "hotspots": (
        ("ncu_tools/kernels/hotspots.py",),
        (f"{KERNELS}/test_rows_in_plain_python.py", f"{KERNELS}/test_notes_of_launches.py",
         f"{KERNELS}/test_rows_of_several_kernels.py", f"{KERNELS}/test_analysis.py",
         f"{KERNELS}/test_bound_by_throughput.py", f"{KERNELS}/test_estimated_flops.py"),
    ),
    "gaps": (
        ("ncu_tools/timeline/gaps.py",),
        (f"{TIMELINE}/test_gaps.py", f"{TIMELINE}/test_launch_links.py", f"{TIMELINE}/test_parts_of_a_gpu.py",
         f"{TIMELINE}/test_timeline_steps.py"),
    ),
    "verdicts": (
        ("ncu_tools/timeline/verdict.py", "ncu_tools/timeline/headline.py"),
        (f"{TIMELINE}/test_verdict.py", f"{TIMELINE}/test_headline.py", f"{TIMELINE}/test_parts_of_a_gpu.py"),
    ),
    "bytes": (
        ("launch/ncu_launch/operators/movement.py", "launch/ncu_launch/operators/calls.py",
         "launch/ncu_launch/operators/table.py"),
        (f"{OPERATORS}/test_movement.py", f"{OPERATORS}/test_calls.py", f"{OPERATORS}/test_table.py",
         f"{OPERATORS}/test_formulas.py", f"{OPERATORS}/test_elementwise.py"),
    ),
    "steps": (
        ("ncu_tools/timeline/graph/critical_path.py", "ncu_tools/timeline/graph/schedule.py",
         "ncu_tools/timeline/graph/what_if.py"),
        (f"{TIMELINE}/graph", f"{TIMELINE}/levers"),
    ),
    "levers": (
        ("ncu_tools/advice/levers/*.py", "ncu_tools/advice/situation/model.py", "ncu_tools/advice/intervals.py",
         "ncu_tools/advice/situation/contradictions.py"),
        (f"{ADVICE}/test_levers.py", f"{ADVICE}/test_lever_numbers.py", f"{ADVICE}/test_model.py",
         f"{ADVICE}/test_any_numbers.py", f"{ADVICE}/test_contradictions.py"),
    ),
    "expected-time": (
        ("ncu_tools/model/expected_time/physics.py", "ncu_tools/model/expected_time/gemm_time.py",
         "ncu_tools/model/expected_time/attention_time.py", "ncu_tools/model/expected_time/movement_time.py",
         "ncu_tools/model/expected_time/corrections.py"),
        ("tests/tools/model/expected_time",),
    ),
}  # fmt: skip
"""Part -> files or patterns of files, and the tests that must notice a small mistake in them."""
