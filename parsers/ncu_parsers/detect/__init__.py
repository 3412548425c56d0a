"""A text report read line by line, whatever pages it holds."""
