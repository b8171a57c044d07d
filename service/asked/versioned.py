"""A version in a URL: found, redirected to its number, and its request judged, before a route runs.

A route takes `served: Version` after its `caller`: who may not ask learns nothing.
"""

from typing import Annotated, NamedTuple

from fastapi import Depends, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from datagen.store.snapshot import Snapshot
from service.served.catalog import Catalog, number_in
from service.served.gate import needs_norm
from service.state import service_of
from service.wire.names import DATASET_HEADER, SCHEMA_HEADER, VERSION_HEADER, WIRING_HEADER

PREFIX = "/v1/datasets/{dataset}/versions/{version}"


class Served(NamedTuple):
    """One version of a dataset, to be read; `headers` go with every answer of it."""

    dataset: str
    number: int
    snapshot: Snapshot

    @property
    def headers(self) -> dict[str, str]:
        """What each response of this version says."""
        return {
            DATASET_HEADER: self.dataset,
            VERSION_HEADER: str(self.number),
            SCHEMA_HEADER: self.snapshot.version.schema_fingerprint,
        }


class MovedError(Exception):
    """The thing asked for has an address of its own: `location`."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


DatasetName = Annotated[str, Path(description="the dataset's name", examples=["demo"])]
VersionText = Annotated[
    str, Path(description="a version's number; `latest` is redirected to its number", examples=["1"])
]


async def version_of(
    request: Request, response: Response, dataset: DatasetName, version: VersionText
) -> Served:
    """Return the version that a request is for, judged by the gate.

    Raises `MovedError` for `latest`, `NotFoundError`, and what the gate raises.
    """
    service = service_of(request)
    number = number_in(version) or 0
    # What is open already takes no thread.
    there = service.catalog.open_snapshot(dataset, number)
    if there is None:
        number, snapshot = await run_in_threadpool(_opened, service.catalog, request, dataset, version)
    else:
        snapshot = there
    schema, wiring = snapshot.schema, request.headers.get(WIRING_HEADER)
    norm = snapshot.kept_norm
    if norm is None and needs_norm(schema, wiring):
        norm = await run_in_threadpool(snapshot.final_norm)
    service.gate.check(schema, request.headers.get(SCHEMA_HEADER), wiring, norm)
    served = Served(dataset, number, snapshot)
    response.headers.update(served.headers)
    return served


Version = Annotated[Served, Depends(version_of)]


def _opened(catalog: Catalog, request: Request, dataset: str, version: str) -> tuple[int, Snapshot]:
    number = catalog.number(dataset, version)
    if str(number) != version:
        raise MovedError(at_version(request, dataset, number))
    return number, catalog.snapshot(dataset, number)


def at_version(request: Request, dataset: str, number: int) -> str:
    """Return the request's own address with the version's number, its query kept, relative to the host."""
    head = f"/v1/datasets/{dataset}/versions/"
    tail = request.url.path.removeprefix(head).partition("/")
    path = f"{head}{number}{tail[1]}{tail[2]}"
    return path + (f"?{request.url.query}" if request.url.query else "")
