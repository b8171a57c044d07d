"""Management over HTTP: each change a new version, or a refusal that changes nothing.

Every answer of a change says the newest version; `If-Match: "12"`, or `expected_version`, refuses a change
where another version is the newest, by 409 with both numbers.
"""

import re
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from datagen.store.dataset import Dataset
from schemas.problem import Problem
from service.access.auth import Caller, requires
from service.asked.versioned import DatasetName
from service.errors import MalformedError
from service.served import comparison, management
from service.served.changes import (
    MAX_LISTED,
    Change,
    Collected,
    Comparison,
    CondemnChange,
    DropChange,
    DropChanged,
    NameChange,
    Named,
    NameList,
    RollbackChange,
    RollbackChanged,
    SplitChange,
    SplitChanged,
    SweepChange,
    VersionText,
)
from service.state import service_of
from service.wire.names import DATASET_HEADER, VERSION_HEADER

_ENTITY_TAG = re.compile(r'"?([1-9][0-9]{0,7})"?')
_C = TypeVar("_C", bound=Change)
_A = TypeVar("_A", SplitChanged, DropChanged, RollbackChanged, Named, Collected)

router = APIRouter(prefix="/v1/datasets/{dataset}", tags=["manage"])

Reader = Annotated[Caller, requires("read")]
Manager = Annotated[Caller, requires("manage")]
Admin = Annotated[Caller, requires("admin")]
Cursor = Annotated[str | None, Query(description="the last page's `next_cursor`")]


def if_match(
    header: Annotated[
        str | None,
        Header(alias="If-Match", description="the version that must still be the newest", examples=['"12"']),
    ] = None,
) -> int | None:
    """Return the version that a request's `If-Match` names; `*` is any.

    Raises `MalformedError` when it names no version, or several.
    """
    if header is None or header.strip() == "*":
        return None
    match = _ENTITY_TAG.fullmatch(header.strip())
    if match is None:
        message = f"expected a version's number, got {header[:80]!r}"
        problem = Problem(where="header.If-Match", kind="version", message=message, repair='write "12"')
        raise MalformedError("the request is malformed", [problem])
    return int(match[1])


IfMatch = Annotated[int | None, Depends(if_match)]


@router.post("/splits")
def set_split(
    request: Request,
    answer: Response,
    caller: Manager,
    dataset: DatasetName,
    asked: SplitChange,
    match: IfMatch,
) -> SplitChanged:
    """Set a split rule: which conversations are for training, and which are held out."""
    found = management.split(_dataset(request, dataset), _expecting(asked, match))
    return _said(answer, found, found.version)


@router.post("/drop")
def drop_samples(
    request: Request,
    answer: Response,
    caller: Manager,
    dataset: DatasetName,
    asked: DropChange,
    match: IfMatch,
) -> DropChanged:
    """Leave samples out of the next version."""
    found = management.drop(_dataset(request, dataset), _expecting(asked, match))
    return _said(answer, found, found.version)


@router.post("/rollback")
def roll_back(
    request: Request,
    answer: Response,
    caller: Manager,
    dataset: DatasetName,
    asked: RollbackChange,
    match: IfMatch,
) -> RollbackChanged:
    """List again, in the next version, what an older one lists."""
    found = management.rollback(_dataset(request, dataset), _expecting(asked, match))
    return _said(answer, found, found.version)


@router.post("/names")
def name_version(
    request: Request, answer: Response, caller: Manager, dataset: DatasetName, asked: NameChange
) -> Named:
    """Give a version a name that never moves; a name that is taken is refused by 409."""
    found = management.name(_dataset(request, dataset), asked)
    return _said(answer, found, found.version)


@router.get("/names")
def list_names(request: Request, caller: Reader, dataset: DatasetName) -> NameList:
    """List the names of a dataset's versions."""
    return management.names(_dataset(request, dataset))


@router.get("/compare")
def compare_versions(
    request: Request,
    caller: Reader,
    dataset: DatasetName,
    first: Annotated[VersionText, Query(alias="from", description="a number, a name or `latest`")],
    second: Annotated[VersionText, Query(alias="to", description="as `from`")] = "latest",
    limit: Annotated[int, Query(ge=0, le=MAX_LISTED, description="ids listed of each kind")] = 100,
    added_cursor: Cursor = None,
    removed_cursor: Cursor = None,
) -> Comparison:
    """Compare two versions: samples added, removed and kept, and what else differs."""
    pages = comparison.Pages(limit, added_cursor, removed_cursor)
    return comparison.compare(_dataset(request, dataset), first, second, pages)


@router.post("/gc/condemn")
def condemn_parts(
    request: Request,
    answer: Response,
    caller: Admin,
    dataset: DatasetName,
    asked: CondemnChange,
    match: IfMatch,
) -> Collected:
    """Condemn the parts that no version needs that is kept; first step of garbage collection."""
    found = management.gc_condemn(_dataset(request, dataset), _expecting(asked, match))
    return _said(answer, found, found.version)


@router.post("/gc/sweep")
def sweep_parts(
    request: Request, answer: Response, caller: Admin, dataset: DatasetName, asked: SweepChange
) -> Collected:
    """Remove the bytes of parts that were condemned long enough ago; second step, never undone."""
    found = management.gc_sweep(_dataset(request, dataset), asked)
    return _said(answer, found, found.version)


def _dataset(request: Request, name: str) -> Dataset:
    return service_of(request).catalog.dataset(name)


def _expecting(asked: _C, match: int | None) -> _C:
    """Return what is asked with the version that `If-Match` expects."""
    if match is None or match == asked.expected_version:
        return asked
    if asked.expected_version is not None:
        message = f"expected the same version as If-Match, {match}, got {asked.expected_version}"
        problem = Problem(where="body.expected_version", kind="version", message=message)
        raise MalformedError("the request is malformed", [problem])
    return asked.model_copy(update={"expected_version": match})


def _said(answer: Response, found: _A, version: int) -> _A:
    answer.headers[DATASET_HEADER] = found.dataset
    answer.headers[VERSION_HEADER] = str(version)
    return found
