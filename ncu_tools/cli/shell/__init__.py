"""What the shell sees of the program itself: its own options, completion of words, and what is in the folder."""
