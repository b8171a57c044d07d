"""`.../samples`: the samples of a version by page, and what the index knows of one."""

import bisect
from typing import Annotated
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from datagen.store.index import Location
from service.access.auth import Caller, requires
from service.asked.cursor import Cursor as PageEnd
from service.asked.selection import select, splits_of
from service.asked.versioned import PREFIX, MovedError, Served, Version, at_version
from service.routes.parameters import EXAMPLE_ID, Cursor, Limit, SampleId, Selected
from service.wire.names import crc32c_text

router = APIRouter(prefix=PREFIX, tags=["samples"])
Reader = Annotated[Caller, requires("read")]


class SampleAnswer(BaseModel):
    """A sample, as the index knows it; `n_trained` of its tokens carry a loss."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "sample_id": EXAMPLE_ID,
                "prompt_id": EXAMPLE_ID,
                "conversation_id": "sharegpt-17",
                "n_tokens": 412,
                "n_trained": 280,
                "splits": ["train"],
            }
        }
    )

    sample_id: str
    prompt_id: str
    conversation_id: str
    n_tokens: int
    n_trained: int
    splits: list[str]


class SampleTensor(BaseModel):
    """A hidden tensor of one sample; `crc32c` is over all its bytes, norms are L2 norms of its rows."""

    name: str
    shape: tuple[int, int]
    dtype: str
    size_bytes: int
    crc32c: str
    norm_median: float
    norm_p99: float


class SampleDetail(SampleAnswer):
    """A sample, and each of its tensors."""

    model_config = ConfigDict(json_schema_extra={})

    part_id: str
    row_start: int
    size_bytes: int
    tensors: list[SampleTensor]


class SamplePage(BaseModel):
    """A page of samples in the order of their ids; `next` is the next one's address."""

    dataset: str
    version: int
    n_selected: int
    samples: list[SampleAnswer]
    next_cursor: str | None
    next: str | None


@router.get("/samples")
def list_samples(
    request: Request,
    caller: Reader,
    served: Version,
    selection: Selected,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> SamplePage:
    """List samples by page, in the order of their ids; commits meanwhile change nothing of it."""
    snapshot = served.snapshot
    positions = select(snapshot, *selection)
    start = 0
    if cursor:
        last = PageEnd.read(cursor)
        if last.version != served.number:
            # Whoever pages through `latest` stays in the version where the paging began.
            raise MovedError(at_version(request, served.dataset, last.version))
        after = bisect.bisect_right(snapshot.sample_ids, last.sample_id)
        start = int(np.searchsorted(positions, after))
    found = [snapshot.index.at(int(position)) for position in positions[start : start + limit]]
    next_cursor = str(PageEnd(served.number, found[-1].sample_id)) if start + limit < len(positions) else None
    asked = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    following = urlencode([*asked, ("cursor", next_cursor)])
    return SamplePage(
        dataset=served.dataset,
        version=served.number,
        n_selected=len(positions),
        samples=[SampleAnswer(**_sample(served, location)) for location in found],
        next_cursor=next_cursor,
        next=f"{request.url.path}?{following}" if next_cursor else None,
    )


@router.get("/samples/{sample_id}")
def get_sample(caller: Reader, served: Version, sample_id: SampleId) -> SampleDetail:
    """Say what the index knows of a sample."""
    schema = served.snapshot.schema
    location = served.snapshot.location(sample_id)
    return SampleDetail(
        **_sample(served, location),
        part_id=location.part_id,
        row_start=location.row_start,
        size_bytes=schema.token_bytes * location.n_tokens,
        tensors=[
            SampleTensor(
                name=spec.name,
                shape=(location.n_tokens, spec.width),
                dtype=spec.dtype,
                size_bytes=spec.row_bytes * location.n_tokens,
                crc32c=crc32c_text(location.crc32c[at]),
                norm_median=location.norm_median[at],
                norm_p99=location.norm_p99[at],
            )
            for at, spec in enumerate(schema.tensors)
        ],
    )


def _sample(served: Served, location: Location) -> dict[str, object]:
    return {
        "sample_id": location.sample_id,
        "prompt_id": location.prompt_id,
        "conversation_id": location.conversation_id,
        "n_tokens": location.n_tokens,
        "n_trained": location.n_trained,
        "splits": splits_of(served.snapshot, location.conversation_id),
    }
