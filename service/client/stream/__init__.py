"""The stream that a trainer reads: a torch `IterableDataset`; all of the client that loads torch."""

from service.client.stream.batch import Batch, ConsumerBatch
from service.client.stream.dataset import Stream, open_stream

__all__ = ["Batch", "ConsumerBatch", "Stream", "open_stream"]
