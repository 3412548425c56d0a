"""Inside a kernel, in time: what each role of warps does, who waits for whom, and what a shorter range would bring."""
