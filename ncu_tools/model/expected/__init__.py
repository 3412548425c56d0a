"""Expected FLOPs and bytes by operator formulas, compared with measured ones."""
