"""The client that trainers keep: numpy, a crc32c library, the standard library; torch only in its stream."""

from service.client.asked import Wiring
from service.client.client import Client

__all__ = ["Client", "Wiring"]
