"""A function timed against another with the same inputs: whether their results agree, and the ratio of their times."""
