"""Makes what the demo and the tests stand on: a real model, real prompts, real tokenizers.

Each module is a script (`python -m deploy.demo.model`) that makes one thing under `data/`, once.
"""
