"""Plan and run a profile of one program or model, and check the machine."""
