"""What can be done about a kernel's time: levers, what each saves as an interval, and how sure that is."""
