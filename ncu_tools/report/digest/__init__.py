"""What a reader must know of a run first, in as few words as are asked for."""
