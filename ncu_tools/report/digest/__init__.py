"""The most important facts on a run, within a word budget."""
