"""How long operators will take on a GPU: physics with a few fitted numbers, corrected by measured times."""
