"""A profile from its plan to its outcome, and what of a machine stands in its way."""
