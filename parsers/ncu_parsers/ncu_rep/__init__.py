"""Binary reports of ncu."""
