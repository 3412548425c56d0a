"""Instructions as text: taken apart, and from NVIDIA's package or nvdisasm where one is installed."""
