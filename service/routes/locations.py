"""`.../locations`: where a sample's bytes lie, for trainers that read the storage themselves.

In a folder that is an absolute path, told only where the settings allow it; in a bucket a presigned URL. What
a reader needs to check the bytes is told with them.
"""

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from datagen.store.checksum import bytes_of, crc32c
from datagen.store.index import Location
from datagen.store.part_reader import PartReader
from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.records import BLOCK_ROWS
from schemas.sample import ID_PATTERN
from schemas.schema import TensorSpec, TokenColumn
from service.access.auth import Caller, requires
from service.asked.asking import names_in, tokens_in
from service.asked.versioned import PREFIX, Served, Version
from service.errors import ForbiddenError, TooLargeError
from service.routes.parameters import SampleId
from service.state import Service, service_of
from service.wire.locations import ArrayLocation, Locations, SampleLocation
from service.wire.names import names_of

router = APIRouter(prefix=PREFIX, tags=["locations"])


class LocationsRequest(BaseModel):
    """Which samples' arrays are asked for; without names all of them."""

    model_config = ConfigDict(extra="forbid")

    ids: list[Annotated[str, Field(pattern=ID_PATTERN)]] = Field(min_length=1)
    names: list[str] | None = Field(default=None, min_length=1)


@router.get("/samples/{sample_id}/locations", response_model=Locations)
def get_locations(
    request: Request,
    caller: Annotated[Caller, requires("read")],
    served: Version,
    sample_id: SampleId,
    names: Annotated[str | None, Query(description="comma-separated; all by default")] = None,
    tokens: Annotated[str | None, Query(description="a window of tokens, 128:512")] = None,
) -> Response:
    """Say where a sample's arrays lie, or the rows of a window of its tokens."""
    wanted = None if names is None else names_of(names)
    return _answer(service_of(request), served, [sample_id], wanted, tokens)


@router.post("/locations", response_model=Locations)
def post_locations(
    request: Request,
    caller: Annotated[Caller, requires("read")],
    served: Version,
    asked: LocationsRequest,
) -> Response:
    """Say where the arrays of several samples lie."""
    service = service_of(request)
    most = service.settings.max_batch_samples
    if len(asked.ids) > most:
        message = f"expected at most {most} samples, got {len(asked.ids)}"
        repair = "ask for them in several requests"
        problem = Problem(where="ids", kind="limit", message=message, repair=repair)
        raise TooLargeError("too many samples at once", [problem])
    return _answer(service, served, asked.ids, asked.names, None)


def _answer(
    service: Service,
    served: Served,
    sample_ids: Sequence[str],
    names: Sequence[str] | None,
    tokens: str | None,
) -> Response:
    locator = Locator(service, served.snapshot, names_in(served.snapshot.schema, names))
    samples = tuple(locator.sample(sample_id, tokens) for sample_id in sample_ids)
    found = Locations(dataset=served.dataset, version=served.number, samples=samples)
    return Response(found.model_dump_json(), media_type="application/json", headers=served.headers)


class Locator:
    """Finds where arrays lie, and the address by which a caller may read each file."""

    def __init__(self, service: Service, snapshot: Snapshot, names: Sequence[str]) -> None:
        self._door = service.catalog.door
        self._settings = service.settings
        self._snapshot = snapshot
        self._tensors = [spec for spec in snapshot.schema.tensors if spec.name in names]
        self._columns = [column for column in snapshot.schema.token_columns if column.name in names]
        # A file is looked up, and a URL signed, once for all samples of a request.
        self._file = cache(self._find_file)

    def sample(self, sample_id: str, tokens: str | None) -> SampleLocation:
        """Return where a sample's arrays lie, or the rows of a window of its tokens.

        Raises `NotFoundError` when there is no such sample, `RangeError` when the window leaves it.
        """
        location = self._snapshot.location(sample_id)
        window = tokens_in(location.n_tokens, tokens)
        part = self._snapshot.part(location)
        found = [self._tensor(part, location, spec, window) for spec in self._tensors]
        found += [self._column(part, location, column, window) for column in self._columns]
        return SampleLocation(sample_id=sample_id, n_tokens=location.n_tokens, arrays=tuple(found))

    def _tensor(
        self, part: PartReader, location: Location, spec: TensorSpec, window: tuple[int, int]
    ) -> ArrayLocation:
        row_start, n_tokens = location.row_start, location.n_tokens
        first, end = window
        place = part.locate(row_start, n_tokens, spec.name, slice(first, end))
        first_block, last_block = first // BLOCK_ROWS, -(-end // BLOCK_ROWS)
        blocks = part.table.blocks(part.table.find(row_start, n_tokens), spec.name)[first_block:last_block]
        start = row_start * spec.row_bytes
        whole = location.crc32c[self._snapshot.schema.names.index(spec.name)]
        return ArrayLocation(
            name=spec.name,
            part_id=part.part_id,
            **self._file(place.key),
            offset=place.offset,
            length=place.length,
            dtype=spec.dtype,
            shape=(end - first, spec.width),
            crc32c=whole if window == (0, n_tokens) else None,
            block_offset=start + first_block * BLOCK_ROWS * spec.row_bytes,
            block_end=start + min(last_block * BLOCK_ROWS, n_tokens) * spec.row_bytes,
            block_bytes=BLOCK_ROWS * spec.row_bytes,
            blocks=tuple(blocks.tolist()),
        )

    def _column(
        self, part: PartReader, location: Location, column: TokenColumn, window: tuple[int, int]
    ) -> ArrayLocation:
        """A token column has no blocks: the one checksum is that of the values asked for."""
        rows = location.row_start, location.n_tokens
        values = part.read_tokens(*rows, column.name, slice(*window))
        place = part.locate_tokens(*rows, column.name, slice(*window))
        value = crc32c(bytes_of(values))
        return ArrayLocation(
            name=column.name,
            part_id=part.part_id,
            **self._file(place.key),
            offset=place.offset,
            length=place.length,
            dtype=column.dtype,
            shape=values.shape,
            crc32c=value,
            block_offset=place.offset,
            block_end=place.offset + place.length,
            block_bytes=place.length,
            blocks=(value,),
        )

    def _find_file(self, key: str) -> dict[str, Any]:
        path, url = self._address(key)
        return {"path": path, "url": url, "size_bytes": self._door.size(key)}

    def _address(self, key: str) -> tuple[str | None, str | None]:
        """Return the path or the URL of a key; raises `ForbiddenError` where neither may be told."""
        settings = self._settings
        path = self._door.local_path(key)
        may_tell = settings.locations == "on" or (settings.locations == "auto" and settings.is_loopback)
        if path is not None and may_tell:
            return str(path), None
        if path is None and settings.locations != "off":
            url = self._door.signed_url(key, settings.presign_seconds)
            if url is not None:
                return None, url
        message = "expected locations to be told, got a service whose settings do not"
        repair = "fetch the tensors over HTTP, or serve with --locations on"
        problem = Problem(where="locations", kind="locations", message=message, repair=repair)
        raise ForbiddenError("locations are not told here", [problem])
