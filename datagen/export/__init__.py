"""Exports: a version in another library's file format, whole or not at all."""
