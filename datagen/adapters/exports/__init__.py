"""Datasets as other libraries' files: one module a format, and what they share."""
