"""Makes datasets of named hidden states: prompts -> plan -> engines -> parts -> version."""
