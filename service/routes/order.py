"""`.../order`: which sample stands where in an epoch, and the table that a client works it out from."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from datagen.store.checksum import bytes_of, crc32c
from schemas.problem import Problem
from service.access.auth import Caller, requires
from service.asked.selection import in_epoch, select
from service.asked.versioned import PREFIX, Version
from service.errors import RangeError
from service.routes.parameters import EXAMPLE_ID, MAX_INT, Epoch, Seed, Selected
from service.wire.frame import Entry, build_frame
from service.wire.names import SAFETENSORS_TYPE, SAMPLE_IDS

router = APIRouter(prefix=PREFIX, tags=["order"])
Reader = Annotated[Caller, requires("read")]
MAX_COUNT = 10_000


class OrderItem(BaseModel):
    """The sample that stands at a position of an epoch."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"position": 0, "sample_id": EXAMPLE_ID, "n_tokens": 412}}
    )

    position: int
    sample_id: str
    n_tokens: int


class OrderAnswer(BaseModel):
    """A stretch of an epoch's order."""

    dataset: str
    version: int
    seed: int
    epoch: int
    n_positions: int
    order: list[OrderItem]


@router.get("/order", responses={416: {}})
def get_order(
    caller: Reader,
    served: Version,
    selection: Selected,
    seed: Seed = 0,
    epoch: Epoch = 0,
    position: Annotated[int, Query(ge=0, le=MAX_INT, description="the first position")] = 0,
    count: Annotated[int, Query(ge=1, le=MAX_COUNT, description="how many at most")] = 100,
) -> OrderAnswer:
    """Say which samples stand at positions of an epoch: a pure function of ids, seed and epoch."""
    snapshot = served.snapshot
    order = in_epoch(snapshot, selection, seed, epoch)
    if position > len(order):
        message = f"expected a position of 0 to {len(order)}, got {position}"
        repair = "go on with the next epoch"
        raise RangeError(
            "the epoch has no such position",
            [
                Problem(
                    where="query.position",
                    kind="position",
                    message=message,
                    repair=repair,
                )
            ],
        )
    items = [
        OrderItem(
            position=position + at,
            sample_id=snapshot.sample_ids[int(place)],
            n_tokens=int(snapshot.index.lengths[place]),
        )
        for at, place in enumerate(order[position : position + count])
    ]
    return OrderAnswer(
        dataset=served.dataset,
        version=served.number,
        seed=seed,
        epoch=epoch,
        n_positions=len(order),
        order=items,
    )


@router.get(
    "/order/table",
    response_class=Response,
    responses={
        200: {
            "description": "`sample_ids` U8 [n, 32], `n_tokens` I32 [n], `n_trained` I32 [n], by sample id",
            "content": {SAFETENSORS_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
def get_order_table(caller: Reader, served: Version, selection: Selected) -> Response:
    """Give every selected sample's id and lengths, as safetensors: all that orders and packs are made of."""
    snapshot = served.snapshot
    positions = select(snapshot, *selection)
    arrays = {
        SAMPLE_IDS: snapshot.index.sample_ids.as_bytes()[positions],
        "n_tokens": snapshot.index.lengths[positions].astype("<i4", copy=False),
        "n_trained": snapshot.index.trained_lengths[positions].astype("<i4", copy=False),
    }
    arrays = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    entries = [Entry(name, str(values.dtype), values.shape) for name, values in arrays.items()]
    sums = {name: crc32c(bytes_of(values)) for name, values in arrays.items()}
    metadata = {"dataset": served.dataset, "version": str(served.number)}
    frame = build_frame(entries, sums, metadata)
    body = b"".join([frame.head, *(arrays[entry.name].tobytes() for entry in frame.entries)])
    return Response(body, media_type=SAFETENSORS_TYPE, headers=served.headers)
