"""FLOPs and least bytes of operators from their shapes and types: formulas as one table, without PyTorch."""
