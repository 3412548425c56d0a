"""The views of commands that read compiled code in place of a run."""
