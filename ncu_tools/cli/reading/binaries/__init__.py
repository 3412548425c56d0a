"""The views of commands that read compiled code instead of a run."""
