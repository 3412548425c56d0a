"""Expected times of operators on a GPU: physical formulas with a few fitted numbers, corrected by measured times."""
