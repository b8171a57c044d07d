"""`/v1/datasets`: which datasets there are, and their versions."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict

from datagen.store.dataset import Dataset
from datagen.store.errors import StoreError
from schemas.problem import Problem
from schemas.records import Operation, SplitRule, VersionRecord
from service.access.auth import Caller, requires
from service.asked.versioned import DatasetName, Version
from service.routes.parameters import Limit
from service.state import service_of

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])
Reader = Annotated[Caller, requires("read")]


class VersionAnswer(BaseModel):
    """A version: what it holds, under which schema, and how it came to be."""

    number: int
    parent: int | None
    operation: Operation
    created_at: AwareDatetime
    run_id: str | None
    schema_fingerprint: str
    n_samples: int
    n_tokens: int
    size_bytes: int
    n_quarantined: int
    splits: list[SplitRule]
    digest: str


class DatasetAnswer(BaseModel):
    """A dataset, its newest version's number, and what keeps it from being read, if anything does."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "demo",
                "latest": 1,
                "n_samples": 436,
                "n_tokens": 158547,
                "size_bytes": 920000000,
                "problems": [],
            }
        }
    )

    name: str
    latest: int | None
    n_samples: int | None
    n_tokens: int | None
    size_bytes: int | None
    problems: list[Problem] = []


class DatasetsAnswer(BaseModel):
    """The datasets that the caller may read, by name."""

    datasets: list[DatasetAnswer]


class VersionsAnswer(BaseModel):
    """Versions, newest first; ask for more with `before=next_before`."""

    versions: list[VersionAnswer]
    next_before: int | None


@router.get("")
def list_datasets(request: Request, caller: Reader) -> DatasetsAnswer:
    """List the datasets that you may read."""
    catalog = service_of(request).catalog
    names = [name for name in catalog.names() if caller.sees(name)]
    found = []
    for name in names:
        try:
            found.append(_dataset(catalog.dataset(name)))
        except StoreError as error:
            # One that is damaged does not hide the others.
            problems = list(error.problems)
            found.append(
                DatasetAnswer(
                    name=name, latest=None, n_samples=None, n_tokens=None, size_bytes=None, problems=problems
                )
            )
    return DatasetsAnswer(datasets=found)


@router.get("/{dataset}")
def get_dataset(request: Request, caller: Reader, dataset: DatasetName) -> DatasetAnswer:
    """Say which version of a dataset is the newest, and what it holds."""
    return _dataset(service_of(request).catalog.dataset(dataset))


@router.get("/{dataset}/versions")
def list_versions(
    request: Request,
    caller: Reader,
    dataset: DatasetName,
    limit: Limit = 100,
    before: Annotated[
        int | None, Query(ge=1, le=10**8, description="only versions before this number")
    ] = None,
) -> VersionsAnswer:
    """List a dataset's versions, newest first."""
    opened = service_of(request).catalog.dataset(dataset)
    newest = opened.log.newest()
    top = newest if before is None else min(newest, before - 1)
    numbers = range(top, max(0, top - limit), -1)
    rest = top - len(numbers)
    return VersionsAnswer(
        versions=[version_answer(opened.version(number)) for number in numbers],
        next_before=rest + 1 if rest > 0 else None,
    )


@router.get("/{dataset}/versions/{version}")
def get_version(caller: Reader, served: Version) -> VersionAnswer:
    """Say what a version holds; `latest` is redirected to its number."""
    return version_answer(served.snapshot.version)


def version_answer(record: VersionRecord) -> VersionAnswer:
    """Return what is told of a version."""
    told = record.model_dump(include=set(VersionAnswer.model_fields))
    return VersionAnswer.model_validate(told)


def _dataset(dataset: Dataset) -> DatasetAnswer:
    newest = dataset.latest()
    return DatasetAnswer(
        name=dataset.name,
        latest=newest.number if newest else None,
        n_samples=newest.n_samples if newest else 0,
        n_tokens=newest.n_tokens if newest else 0,
        size_bytes=newest.size_bytes if newest else 0,
    )
