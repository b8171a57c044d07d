"""Tests of reading prompts."""
