"""A program's runs over its commits: series of counts and times per kernel, when each changed, and why."""
