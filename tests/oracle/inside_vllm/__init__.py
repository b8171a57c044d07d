"""What runs in vLLM's own virtual environment, by path: nothing here imports Strata or is imported by it."""
