"""`/healthz`, `/readyz`, `/metrics`: is it up, can it read what it serves, and what did it do."""

import logging
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from datagen.store.errors import StoreError
from schemas.problem import Problem
from service.access.auth import PUBLIC
from service.errors import NotReadyError
from service.metrics import CONTENT_TYPE
from service.served.catalog import Catalog
from service.state import service_of

_LOG = logging.getLogger("strata.service")
router = APIRouter(tags=["health"], dependencies=[PUBLIC])
READ_TOKENS = 4


class HealthAnswer(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ReadyAnswer(BaseModel):
    """What was read, just now, to know that the service can."""

    status: Literal["ready"] = "ready"
    n_datasets: int
    read: str | None


@router.get("/healthz")
async def get_health() -> HealthAnswer:
    """Say that the process answers."""
    return HealthAnswer()


@router.get("/readyz")
def get_ready(request: Request) -> ReadyAnswer:
    """Read a version's record, its index and a few tokens of a sample, and say whether that went well."""
    catalog = service_of(request).catalog
    try:
        names = catalog.names()
    except StoreError as error:
        raise _not_ready(error) from error
    failed: StoreError | None = None
    for name in names:
        try:
            if read := _read_a_little(catalog, name):
                return ReadyAnswer(n_datasets=len(names), read=read)
        except StoreError as error:
            failed = error  # one that is damaged: another may be well
    if failed is not None:
        raise _not_ready(failed) from failed
    return ReadyAnswer(n_datasets=len(names), read=None)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_metrics(request: Request) -> Response:
    """Give the counters in Prometheus' text format."""
    return Response(service_of(request).metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})


def _not_ready(error: StoreError) -> NotReadyError:
    # What it is, and where, is for the log: anybody may ask this.
    _LOG.error("not ready: %s", error)
    problem = Problem(where="root", kind="unreadable", message="expected a readable dataset, got none")
    return NotReadyError("the service cannot read what it is to serve", [problem])


def _read_a_little(catalog: Catalog, name: str) -> str | None:
    """Read the first tokens of a dataset's first sample, checked; return what was read, if there is any."""
    newest = catalog.dataset(name).log.newest()
    if not newest:
        return None
    snapshot = catalog.snapshot(name, newest)
    if not len(snapshot):
        return None
    location = snapshot.index.at(0)
    window = slice(0, min(READ_TOKENS, location.n_tokens))
    tensor = snapshot.schema.names[0]
    place = snapshot.part(location).locate(location.row_start, location.n_tokens, tensor)
    # By its name: a file that is gone may still be open, and read.
    catalog.door.size(place.key)
    snapshot.read(location.sample_id, (tensor,), window)
    return "a sample's first tokens"
