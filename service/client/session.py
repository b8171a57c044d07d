"""How one client fetches: over HTTP, or from the files themselves where it can read them."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPResponse
from typing import Literal, Self, TypeVar

from schemas.errors import RecordError
from schemas.record import canonical_json
from service.client.body import Asked, WrongBytesError, receive, receive_planes
from service.client.connections import Address, Connections
from service.client.direct import DirectReader, Known
from service.client.errors import ChecksumError, DeniedError, ProtocolError
from service.client.rows import Out, Rows
from service.client.stack import MakePlanes
from service.client.transport import Patience, Request, Transport
from service.wire.locations import Locations, SampleLocation
from service.wire.names import names_text
from service.wire.window import window_text

Direct = bool | Literal["auto"]
"""Read the files that locations name: always, never, or (`"auto"`) where the first of them can be read."""

Mode = Literal["http", "direct"]

LOCATIONS_KEPT = 2**13
"""About 14 KB each, of seven arrays."""

LOCATIONS_AT_ONCE = 256

T = TypeVar("T")
_log = logging.getLogger("strata.client")


@dataclass(frozen=True)
class Settings:
    """Whom a client asks, with which key, and how."""

    url: str
    key: str | None = field(repr=False)
    timeout: float
    connect_timeout: float
    patience: Patience
    direct: Direct
    check: bool


class Session:
    """What a client and its versions share; safe for threads and forked children. Pickles as its settings."""

    def __init__(self, settings: Settings) -> None:
        address = Address.parse(settings.url)
        connections = Connections(address, settings.timeout, settings.connect_timeout)
        self.settings = settings
        self.transport = Transport(connections, settings.key, settings.patience)
        self.mode: Mode | None = None
        if settings.direct != "auto":
            self.mode = "direct" if settings.direct else "http"
        self._files = DirectReader(check=settings.check)
        self._locations: OrderedDict[tuple[str, int, str], Known] = OrderedDict()

    def __reduce__(self) -> tuple[type[Self], tuple[Settings]]:
        return type(self), (self.settings,)

    def __repr__(self) -> str:
        return f"Session({self.transport.connections.address})"

    def fetch(self, asked: Asked, headers: Mapping[str, str], out: Out) -> Rows:
        """Return what was asked for; `headers` say the schema and the wiring that are meant."""
        if self.mode is None:
            self._choose(asked, headers)
        if self.mode == "direct":
            return self._files.read(asked, self.locate(asked, headers), out)
        request = _request(asked, headers)
        read = partial(receive, asked=asked, out=out, check=self.settings.check)
        return self.send_checked(request, read)

    def fetch_planes(self, asked: Asked, headers: Mapping[str, str], makers: Sequence[MakePlanes]) -> None:
        """Fill the planes that each sample's maker makes, whole; else as `fetch`."""
        if self.mode is None:
            self._choose(asked, headers)
        if self.mode == "direct":
            for known, make in zip(self.locate(asked, headers), makers, strict=True):
                self._files.read_planes(known, make(known.n_tokens))
        else:
            read = partial(receive_planes, asked=asked, makers=makers, check=self.settings.check)
            self.send_checked(_request(asked, headers), read)

    def send_checked(self, request: Request, read: Callable[[HTTPResponse], T]) -> T:
        """Return what `read` makes of an answer; bytes that changed on the way are asked for once more.

        Raises `ChecksumError` that names the arrays when they changed again.
        """
        try:
            return self.transport.send(request, read)
        except WrongBytesError as error:
            _log.warning("%s: %s changed on the way; asking again", request.path, error)
        try:
            return self.transport.send(request, read)
        except WrongBytesError as error:
            raise ChecksumError(f"{request.path}: bytes changed on the way, twice", error.problems) from error

    def locate(self, asked: Asked, headers: Mapping[str, str]) -> list[Known]:
        """Return where the samples lie, whole; those that are not known yet are asked for together."""
        version, names = (asked.dataset, asked.number), frozenset(asked.names)
        found = {}
        for sample_id in asked.sample_ids:
            known = self._locations.get((*version, sample_id))
            if known is not None and known.arrays.keys() >= names:
                found[sample_id] = known
        unknown = [sample_id for sample_id in dict.fromkeys(asked.sample_ids) if sample_id not in found]
        for start in range(0, len(unknown), LOCATIONS_AT_ONCE):
            ids = unknown[start : start + LOCATIONS_AT_ONCE]
            for location in self._ask_locations(asked, ids, headers):
                known = Known.of(location, asked)
                found[known.sample_id] = self._locations[(*version, known.sample_id)] = known
        while len(self._locations) > LOCATIONS_KEPT:
            self._locations.popitem(last=False)
        return [found[sample_id] for sample_id in asked.sample_ids]

    def _ask_locations(
        self, asked: Asked, ids: Sequence[str], headers: Mapping[str, str]
    ) -> tuple[SampleLocation, ...]:
        path = f"{_version_path(asked)}/locations"
        body = canonical_json({"ids": list(ids), "names": list(asked.names)})
        data, _ = self.transport.json(Request("POST", path, headers, body))
        try:
            told = Locations.from_json(data, path)
        except RecordError as error:
            raise ProtocolError(error.headline, error.problems) from error
        if [sample.sample_id for sample in told.samples] != list(ids):
            raise ProtocolError(f"{path}: expected {len(ids)} samples in the order asked, got others")
        return told.samples

    def _choose(self, asked: Asked, headers: Mapping[str, str]) -> None:
        """Look once whether the files of the first sample can be read here."""
        try:
            can_read = self._files.can_read(self.locate(asked, headers)[0])
        except DeniedError:
            can_read = False
        self.mode = "direct" if can_read else "http"
        _log.info("%s: samples are read by %s", self.transport.connections.address, self.mode)


def _version_path(asked: Asked) -> str:
    return f"/v1/datasets/{asked.dataset}/versions/{asked.number}"


def _request(asked: Asked, headers: Mapping[str, str]) -> Request:
    base = _version_path(asked)
    if asked.is_batch:
        body = canonical_json({"ids": list(asked.sample_ids), "names": list(asked.names)})
        return Request("POST", f"{base}/batch", headers, body)
    query = f"names={names_text(asked.names)}"
    if asked.tokens is not None:
        query += f"&tokens={window_text(asked.tokens)}"
    return Request("GET", f"{base}/samples/{asked.sample_ids[0]}/tensors?{query}", headers)
