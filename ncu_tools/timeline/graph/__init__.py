"""A recorded step as a dependency graph of operations and API calls, which can be replayed with other times."""
