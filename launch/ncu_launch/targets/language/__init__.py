"""Causal language models: their published configurations, and prefill and decode with a KV cache as workloads."""
