"""The client: one service, a key, and how long and how often it is asked."""

from typing import Literal

from schemas.card import Card
from schemas.schema import Schema
from schemas.wiring import Wiring
from service.client.answers import DatasetAnswer, VersionAnswer
from service.client.version import Version

Direct = bool | Literal["auto"]
"""Read the files that locations name: always, never, or (`"auto"`) where the first of them can be read."""


class Client:
    """A service at `url`, asked with an API key.

    `timeout` and `connect_timeout` are seconds without a byte, and until connected. What may be asked again
    is, up to `retries` times with growing pauses. Safe for threads, for forked children (each opens its own
    connections) and to be pickled.

        client = Client("http://127.0.0.1:8000")
        wiring = Wiring(
            consumer="speculators", kind="trainer", n_layers=30, fc=("layer2", "layer15", "layer27"),
            target=TargetRole(tensor="final", applies_norm=True),
        )
        version = client.version("demo", wiring=wiring)
        rows = version.tensors(sample_id, tokens=slice(0, 64))
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        retries: int = 4,
        direct: Direct = "auto",
    ) -> None:
        raise NotImplementedError

    def datasets(self) -> tuple[DatasetAnswer, ...]:
        """Return the datasets that the key may read."""
        raise NotImplementedError

    def versions(self, dataset: str) -> tuple[VersionAnswer, ...]:
        """Return the versions of a dataset, ascending."""
        raise NotImplementedError

    def schema(self, dataset: str, version: int | str = "latest") -> Schema:
        """Return a version's schema."""
        raise NotImplementedError

    def version(
        self, dataset: str, version: int | str = "latest", *, wiring: Wiring | Card | None = None
    ) -> Version:
        """Return a version to fetch from, by number, name or `latest`, which is resolved here once.

        Raises `RefusedError` with every problem when its schema does not have what `wiring` takes, or when
        the target is not the card's.
        """
        raise NotImplementedError
