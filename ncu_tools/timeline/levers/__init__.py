"""What can be done about the time of a step, and what that brings: a replay of its graph for each lever."""
