"""Parameters that several routes take, each with its bounds, its meaning and an example."""

from typing import Annotated

from fastapi import Depends, Path, Query

from schemas.sample import ID_PATTERN
from service.asked.selection import Selection

EXAMPLE_ID = "0787ec2d4fe3a1ff7e52a76ad13efab9d199447223c89b810918bc5584e0e23f"
MAX_INT = 2**31 - 1
MAX_SEED = 2**63 - 1
MAX_PAGE = 1000

SampleId = Annotated[
    str, Path(pattern=ID_PATTERN, description="a sample's id: 64 hex digits", examples=[EXAMPLE_ID])
]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="at most so many")]
Cursor = Annotated[
    str | None, Query(max_length=256, description="`next_cursor` of the page before; empty: from the start")
]
Seed = Annotated[int, Query(ge=0, le=MAX_SEED, description="the epoch order's seed")]
Epoch = Annotated[int, Query(ge=0, le=MAX_INT, description="from 0")]


def selection_of(
    split: Annotated[str | None, Query(max_length=128, description="only samples of this split")] = None,
    min_tokens: Annotated[int, Query(ge=0, le=MAX_INT, description="only samples of so many tokens")] = 0,
    min_trained: Annotated[
        int, Query(ge=0, le=MAX_INT, description="only samples with so many tokens that carry a loss")
    ] = 0,
) -> Selection:
    """Return the samples that a request means."""
    return Selection(split, min_tokens, min_trained)


Selected = Annotated[Selection, Depends(selection_of)]
