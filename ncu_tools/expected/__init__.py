"""FLOPs and bytes by operator formulas, beside what was measured."""
