"""The failure that Strata exists for, live: `python -m deploy.demo.incident`, or `make incident`.

Two real EAGLE-3 drafts are trained by speculators' own trainer on the demo's states: one from an export, one
from an unnamed list as the incident's script wrote it. The second looks healthy until it is replayed.
"""
