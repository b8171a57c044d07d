"""A real vLLM behind the engine `vllm`: run by `make vllm` inside an environment of its own."""
