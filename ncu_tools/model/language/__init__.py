"""Language models in prefill and decode: bytes read, FLOPs by arithmetic, and both against peaks."""
