"""What can be done about a kernel's time: levers, the interval of each one's saving, and how often intervals held."""
