"""What runs inside another project's own process: its writer of hidden states, and what it lacks on a CPU."""
