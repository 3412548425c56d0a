"""The commands for programs that read profiles, a file for each."""
