"""Language models in prefill and decode: bytes that are read, FLOPs by arithmetic, and both against peaks."""
