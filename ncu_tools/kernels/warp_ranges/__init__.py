"""A kernel's timeline by warp: what each role of warps does, which waits for which, and what-ifs of shorter ranges."""
