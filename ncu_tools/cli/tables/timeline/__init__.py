"""What `timeline` shows: its parts as text, or all of it for programs."""
