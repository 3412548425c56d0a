"""The version of ncu-bench."""

VERSION = "0.1.0"
