"""Serves datasets over HTTP, and holds the client that trainers keep."""
