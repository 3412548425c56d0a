"""The commands for programs that read profiles, one file each."""
