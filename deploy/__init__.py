"""What runs Strata somewhere: run configs, constraints, and the makers of the demo's model and prompts."""
