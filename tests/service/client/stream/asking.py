"""Streams over samples in memory, as tests ask for them."""

from typing import Any

from service.client.asked import Asked, Wiring
from service.client.source import Source
from service.client.stream import Stream, open_stream

FC = ("layer1", "layer2", "layer3")
WIRING = Wiring("speculators", FC, "final", version="0.9.0")
SPECFORGE = Wiring("specforge", FC, "final_normed", version="0.2.0")


def stream_of(source: Source, wiring: Asked = WIRING, **options: Any) -> Stream:
    """Return a stream; unless said, of packs of 16 tokens, for one epoch, of seed 0."""
    if not options.keys() & {"tokens_per_batch", "samples_per_batch"}:
        options["tokens_per_batch"] = 16
    return open_stream(source, wiring, **{"seed": 0, "epochs": 1, **options})
