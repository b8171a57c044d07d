"""`.../tensors` and `.../batch`: the bytes of samples, by name, as safetensors or as one raw tensor."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from datagen.store.errors import NotFoundError
from datagen.store.index import Location
from datagen.store.snapshot import Snapshot
from schemas.problem import Problem
from schemas.records import BLOCK_ROWS
from schemas.sample import ID_PATTERN
from service.access.auth import Caller, requires
from service.answers.body import Body, Planner, Rows, n_bytes_of
from service.answers.pieces import LOCAL_PIECE_BYTES, REMOTE_PIECE_BYTES, clipped, pieces
from service.answers.streaming import BodyResponse
from service.asked.asking import format_of, names_in, tokens_in
from service.asked.byte_range import Asked, asked_for
from service.asked.selection import Selection, in_epoch
from service.asked.versioned import PREFIX, Served, Version
from service.edge.responses import problem_response
from service.errors import RangeError, TooLargeError
from service.routes.parameters import MAX_INT, MAX_SEED
from service.state import Service, service_of
from service.wire.names import PROBLEM_TYPE, RAW_TYPE, SAFETENSORS_TYPE, TensorFormat, names_of

router = APIRouter(prefix=PREFIX, tags=["tensors"])

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PROBLEM: dict[str, Any] = {"content": {PROBLEM_TYPE: {}}}
_SENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "the bytes", "content": {SAFETENSORS_TYPE: _BINARY, RAW_TYPE: _BINARY}},
    206: {"description": "a range of the bytes", "content": {SAFETENSORS_TYPE: _BINARY, RAW_TYPE: _BINARY}},
    304: {"description": "the ETag of `If-None-Match` is still right"},
    416: {"description": "the window or the range lies outside", **_PROBLEM},
}


class EpochPositions(BaseModel):
    """Samples by where they stand in an epoch, as `.../order` says."""

    model_config = ConfigDict(extra="forbid")

    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    epoch: int = Field(default=0, ge=0, le=MAX_INT)
    split: str | None = Field(default=None, max_length=128)
    min_tokens: int = Field(default=0, ge=0, le=MAX_INT)
    min_trained: int = Field(default=0, ge=0, le=MAX_INT)
    positions: list[Annotated[int, Field(ge=0, le=MAX_INT)]] = Field(min_length=1)


class BatchRequest(BaseModel):
    """Which samples are asked for, in the order of the answer: by `ids`, or by positions of an `order`.

    Without names all tensors and token columns.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"ids": ["0" * 64], "names": ["final", "input_ids"]},
                {"order": {"seed": 0, "epoch": 0, "positions": [0, 1, 2]}},
            ]
        },
    )

    ids: list[Annotated[str, Field(pattern=ID_PATTERN)]] | None = Field(default=None, min_length=1)
    order: EpochPositions | None = None
    names: list[str] | None = Field(default=None, min_length=1)

    @property
    def n_samples(self) -> int:
        """How many samples are asked for."""
        return len(self.ids or ()) + len(self.order.positions if self.order else ())

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.ids is None) == (self.order is None):
            raise ValueError("expected either ids or an order, got both or neither")
        return self


@router.get("/samples/{sample_id}/tensors", response_class=Response, responses=_SENT)
@router.head("/samples/{sample_id}/tensors", include_in_schema=False)
async def get_tensors(
    request: Request,
    caller: Annotated[Caller, requires("read")],
    served: Version,
    sample_id: Annotated[str, Path(pattern=ID_PATTERN, description="64 hex digits")],
    names: Annotated[
        str | None, Query(description="comma-separated; all by default", examples=["layer3,final"])
    ] = None,
    tokens: Annotated[
        str | None, Query(description="a window of tokens; an end may be left out", examples=["128:512"])
    ] = None,
    form: Annotated[
        TensorFormat | None,
        Query(alias="format", description="`raw`: one tensor's bytes alone; else by Accept"),
    ] = None,
) -> Response:
    """Fetch tensors and token columns of a sample, or of a window of its tokens."""
    service = service_of(request)

    def plan() -> Body:
        location = served.snapshot.location(sample_id)
        wanted = names_in(served.snapshot.schema, None if names is None else names_of(names))
        chosen = format_of(form, request.headers.get("accept"), wanted)
        rows = Rows(location, *tokens_in(location.n_tokens, tokens))
        return Planner(served.snapshot, _metadata(served)).sample(rows, wanted, chosen)

    body = await run_sync(plan)
    asked = asked_for(request.method, request.headers, body.etag, body.size)
    headers = {"etag": body.etag, "accept-ranges": "bytes", "vary": "accept"}
    if not isinstance(asked, Asked):
        problem = Problem(where="range", kind="range", message=asked.message)
        headers = {**headers, **served.headers, "content-range": f"bytes */{body.size}"}
        return problem_response(request, 416, "the range cannot be served", [problem], headers)
    return _answer(service, caller, served, body, asked, headers, is_head=request.method == "HEAD")


@router.post(
    "/batch",
    response_class=Response,
    responses={
        200: {"description": "the samples end to end", "content": {SAFETENSORS_TYPE: _BINARY}},
        416: {"description": "the epoch has no such position", **_PROBLEM},
    },
)
async def post_batch(
    request: Request, caller: Annotated[Caller, requires("read")], served: Version, asked: BatchRequest
) -> Response:
    """Fetch several whole samples: each tensor end to end, with `offsets` and `sample_ids` beside it."""
    service = service_of(request)
    most = service.settings.max_batch_samples
    if asked.n_samples > most:
        message = f"expected at most {most} samples, got {asked.n_samples}"
        problem = Problem(where="ids", kind="limit", message=message, repair="ask in several requests")
        raise TooLargeError("too many samples at once", [problem])

    def plan() -> Body:
        names = names_in(served.snapshot.schema, asked.names)
        locations = _located(served.snapshot, asked)
        n_tokens = sum(location.n_tokens for location in locations)
        service.limits.check_response(n_bytes_of(served.snapshot, names, n_tokens))
        return Planner(served.snapshot, _metadata(served)).batch(locations, names)

    body = await run_sync(plan)
    return _answer(service, caller, served, body, Asked(200, 0, body.size), {})


def _answer(
    service: Service,
    caller: Caller,
    served: Served,
    body: Body,
    asked: Asked,
    headers: Mapping[str, str],
    *,
    is_head: bool = False,
) -> Response:
    """Return the response that sends what is asked for of a body, within the limits."""
    told = {**served.headers, **headers}
    if asked.status == 304:
        return Response(status_code=304, headers=told)
    size = asked.end - asked.first
    service.limits.check_response(size)
    if not is_head:
        service.limits.take_bytes(caller, size)
    if asked.status == 206:
        told["content-range"] = f"bytes {asked.first}-{asked.end - 1}/{body.size}"
    is_local = service.catalog.door.local_path(served.dataset) is not None
    piece_bytes = LOCAL_PIECE_BYTES if is_local else REMOTE_PIECE_BYTES
    schema = served.snapshot.schema
    return BodyResponse(
        pieces(clipped(body.segments, asked.first, asked.end), piece_bytes),
        size,
        {**told, **body.headers, "content-type": body.media_type},
        service.limits,
        max(piece_bytes, piece_bytes // 2 + BLOCK_ROWS * max(spec.row_bytes for spec in schema.tensors)),
        status_code=asked.status,
        is_head=is_head,
    )


def _metadata(served: Served) -> dict[str, str]:
    return {
        "dataset": served.dataset,
        "version": str(served.number),
        "schema": served.snapshot.version.schema_fingerprint,
    }


def _located(snapshot: Snapshot, asked: BatchRequest) -> list[Location]:
    """Return where the samples of a batch lie, in its order.

    Raises `NotFoundError` that names every id, and `RangeError` every position, that is not there.
    """
    if asked.order is not None:
        return _standing(snapshot, asked.order)
    found: list[Location] = []
    problems: list[Problem] = []
    for sample_id in asked.ids or ():
        try:
            found.append(snapshot.location(sample_id))
        except NotFoundError as error:
            problems += error.problems
    if problems:
        raise NotFoundError("no such samples", problems)
    return found


def _standing(snapshot: Snapshot, asked: EpochPositions) -> list[Location]:
    selection = Selection(asked.split, asked.min_tokens, asked.min_trained)
    order = in_epoch(snapshot, selection, asked.seed, asked.epoch)
    problems = [
        Problem(
            where="order.positions",
            kind="position",
            message=f"expected a position below {len(order)}, got {position}",
            repair="go on with the next epoch",
        )
        for position in asked.positions
        if position >= len(order)
    ]
    if problems:
        raise RangeError("the epoch has no such positions", problems)
    return [snapshot.index.at(int(order[position])) for position in asked.positions]
