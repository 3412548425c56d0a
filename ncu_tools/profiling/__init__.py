"""A profile seen whole: collect, read, and run again where that is needed."""
