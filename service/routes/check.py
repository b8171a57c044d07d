"""`POST /v1/check`: the checks of `strata check`, on a dataset that is served and on what a request says."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from schemas.card import Card
from schemas.consumers.resolution import Shape
from schemas.judging import DatasetFacts, as_data, judge
from schemas.problem import Problem
from schemas.reference import DatasetReference
from schemas.request import read_wiring
from schemas.sides import Sides, side_problems
from service.access.auth import Caller, requires
from service.errors import ForbiddenError, MalformedError
from service.served.catalog import LATEST, Catalog
from service.state import service_of

router = APIRouter(prefix="/v1", tags=["check"])
EXAMPLE: JsonDict = {"dataset": "demo", "trainer": "speculators==0.9.0", "server": "sglang==0.5.23"}
Named = Annotated[str, Field(min_length=1, max_length=128)]


class CheckRequest(BaseModel):
    """What is compared: at least two of dataset, trainer (or wiring), card and server."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE]})

    dataset: Named | None = Field(default=None, description="the name of a dataset that is served")
    version: Named = Field(default=LATEST, description="its version: a number, a name or `latest`")
    trainer: Named | None = Field(default=None, description="NAME[==VERSION], as speculators==0.9.0")
    trainer_ids: list[Annotated[int, Field(ge=-1_000_000, le=1_000_000)]] | None = Field(
        default=None,
        max_length=1024,
        description="the layer ids that the trainer is given, in its own numbers",
    )
    trainer_engine: Named | None = Field(default=None, description="what the trainer captures with")
    wiring: dict[str, Any] | None = Field(default=None, description="a trainer's wiring, in full")
    card: Card | None = Field(default=None, description="the card of a draft's checkpoint")
    server: Named | None = Field(default=None, description="NAME[==VERSION], as sglang==0.5.23")
    server_args: str | None = Field(
        default=None, max_length=1 << 16, description="the command line that the server is started with"
    )
    draft_config: dict[str, Any] | None = Field(default=None, description="the draft's config.json")
    raw: bool = Field(default=False, description="the trainer reads samples as they are stored")


class CheckAnswer(BaseModel):
    """What each side means, and every problem; notes are among them. `ok` says that there is no error."""

    ok: bool
    dataset: str | None
    dataset_version: int | None
    schema_fingerprint: str | None
    trainer: dict[str, Any] | None
    server: dict[str, Any] | None
    server_flags: dict[str, Any] | None
    problems: list[Problem]


@router.post("/check", responses={404: {}})
def post_check(
    request: Request, caller: Annotated[Caller, requires("read")], asked: CheckRequest
) -> CheckAnswer:
    """Say whether dataset, trainer and server mean the same tensors; that they do not is an answer."""
    given = {name for name, value in asked.model_dump(exclude_defaults=True).items() if value is not None}
    sides_given = {"trainer_wiring" if name == "wiring" else name for name in given}
    problems = side_problems(sides_given, _field)
    if asked.dataset is None and asked.card is None:
        message = "expected a dataset or a card, which say what the target is, got neither"
        problems.append(Problem(where="body.dataset", kind="missing", message=message))
    if problems:
        raise MalformedError("there is nothing to compare", problems)
    facts = None if asked.dataset is None else _facts(service_of(request).catalog, caller, asked)
    target = facts.schema.target if facts is not None else asked.card.target if asked.card else None
    assert target is not None
    wiring = None
    if asked.wiring is not None:
        wiring = read_wiring(json.dumps(asked.wiring).encode(), target, "wiring")
    sides = Sides(
        dataset=facts,
        trainer=asked.trainer,
        trainer_ids=None if asked.trainer_ids is None else tuple(asked.trainer_ids),
        trainer_engine=asked.trainer_engine,
        trainer_wiring=wiring,
        card=asked.card,
        server=asked.server,
        draft_config=asked.draft_config,
        server_args=asked.server_args,
        raw=asked.raw,
        as_flags=False,
    )
    report = judge(sides, Shape(model_type=target.model_type, n_layers=target.n_layers))
    return CheckAnswer.model_validate(as_data(report))


def _field(name: str) -> str:
    return "wiring" if name == "trainer_wiring" else name


def _facts(catalog: Catalog, caller: Caller, asked: CheckRequest) -> DatasetFacts:
    """Return what is known of the dataset; raises `ForbiddenError` as a route with it in its path would."""
    name = asked.dataset or ""
    if not caller.sees(name):
        message = f"expected a grant for {name!r}, got none"
        problem = Problem(where="key", kind="grant", message=message, repair="ask for a key that names it")
        raise ForbiddenError("this key may not do that", [problem])
    number = catalog.number(name, asked.version)
    snapshot = catalog.snapshot(name, number)
    reference = DatasetReference("", name, number)
    return DatasetFacts(str(reference).lstrip("/"), snapshot.schema, snapshot.version, snapshot.final_norm())
