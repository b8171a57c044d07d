"""What a request means: which version, which samples, which tensors, and what of the bytes."""
