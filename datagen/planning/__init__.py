"""What a run is before anything is made: its target and prompts, its units, and what they will cost."""
