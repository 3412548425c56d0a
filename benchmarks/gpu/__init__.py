"""What only a GPU can confirm: programs whose work is known, and one command that runs and keeps everything."""
