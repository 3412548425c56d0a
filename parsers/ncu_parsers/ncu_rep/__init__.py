"""Binary reports of ncu."""

MAGIC = b"NVR\0"
"""The first bytes of one, here for those who look at nothing else: readers import protobuf."""
