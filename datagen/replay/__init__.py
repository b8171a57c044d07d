"""Drafts run on stored states without an inference engine, and what their numbers tell of a wiring."""
