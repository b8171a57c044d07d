"""`/v1/datasets`: which datasets there are."""

from typing import Annotated

from fastapi import APIRouter, Request

from service.auth import Caller, requires
from service.state import service_of

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])


@router.get("")
def list_datasets(request: Request, caller: Annotated[Caller, requires("read")]) -> dict[str, list[str]]:
    """List the datasets."""
    return {"datasets": service_of(request).catalog.names()}
