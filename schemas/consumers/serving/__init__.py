"""Serving flags: what a server of a version will really run, given the command line that starts it."""

from schemas.consumers.serving.effective import effective_flags
from schemas.consumers.serving.flags import ServingFlags

__all__ = ["ServingFlags", "effective_flags"]
