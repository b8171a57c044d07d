"""Engines: what runs the target model and hands out hidden states, one module an engine.

`base` holds the Protocol. torch lives only in the modules of this room.
"""
