"""The OpenAPI document: FastAPI's own, with the refusals that every route shares written in once.

Each operation says its scope (as the description's last line), its security, and each status that it may
answer with; every refusal has one body, `ProblemAnswer`.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from schemas.problem import Problem
from service.wire.names import (
    DATASET_HEADER,
    PROBLEM_TYPE,
    REQUEST_ID_HEADER,
    SCHEMA_HEADER,
    VERSION_HEADER,
    WIRING_HEADER,
)

DESCRIPTION = """Hidden states of large language models, every tensor by name.

A version never changes: whatever is asked of `/versions/12` is answered the same for ever, and `latest` is a
redirect (307). A request may say which schema (`Strata-Schema`, a fingerprint) and which wiring
(`Strata-Wiring`, JSON) it means; where the dataset's is another, it is refused (409) with every difference as
data, before a byte of a tensor is sent. Refusals are `application/problem+json` (RFC 9457)."""

SAID = {
    307: "the same for the version's number",
    401: "no key, or one that is unknown, expired or revoked",
    403: "the key may not do that",
    404: "no such dataset, version or sample",
    408: "the request's body did not come in time",
    409: "the request does not fit the dataset, or what is there now",
    410: "it was there, and is gone for good",
    413: "over a limit",
    416: "outside of what there is",
    422: "a parameter, a header or the body is not what it should be",
    429: "too much at once; `Retry-After` says when to ask again",
    500: "damage, named; or what nobody foresaw",
    503: "the service cannot read what it is to serve",
}
EXAMPLE = {
    "type": "about:blank",
    "title": "no such dataset",
    "status": 404,
    "instance": "/v1/datasets/dmo",
    "request_id": "0b5c7a4e8f6d4c1c9e6f2b7d3a1f0c55",
    "problems": [
        {
            "where": "dataset",
            "kind": "dataset",
            "message": "expected a dataset that is served, got 'dmo'",
            "severity": "error",
            "repair": "GET /v1/datasets lists those that you may read",
        }
    ],
}


class ProblemAnswer(BaseModel):
    """A refusal or a failure: a line that says what, and every problem as data."""

    type: str
    title: str
    status: int
    instance: str
    request_id: str | None
    problems: list[Problem]


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document; made once, kept by the application."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=DESCRIPTION,
            routes=app.routes,
        )
        _complete(made)
        app.openapi_schema = made
    return app.openapi_schema


def _complete(made: dict[str, Any]) -> None:
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    own = ProblemAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.setdefault("Problem", own.pop("$defs")["Problem"])
    schemas["ProblemAnswer"] = own
    parts["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "a key, `strata_<id>_<secret>`"}
    }
    parts["headers"] = {
        REQUEST_ID_HEADER: {"description": "in the log too", "schema": {"type": "string"}},
        DATASET_HEADER: {"schema": {"type": "string"}},
        VERSION_HEADER: {"schema": {"type": "integer"}},
        SCHEMA_HEADER: {"description": "the schema's fingerprint", "schema": {"type": "string"}},
    }
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _refusals(method, path, operation)


def _refusals(method: str, path: str, operation: dict[str, Any]) -> None:
    responses = operation.setdefault("responses", {})
    public = not path.startswith("/v1/")
    wanted = {403, 503} if public else {401, 403, 422, 429, 500, 503}
    if "{" in path:
        wanted.add(404)
    if "requestBody" in operation:
        wanted |= {408, 413}
    if method != "get" and "{version}" not in path:
        wanted |= {409}
    if "{version}" in path:
        wanted |= {409, 410}
        _gated(operation, responses)
    if not public:
        operation["security"] = [{"key": []}]
    for status in sorted(wanted | {int(code) for code in responses if code.startswith(("4", "5"))}):
        responses[str(status)] = {
            "description": SAID[status],
            "content": {
                PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}, "example": EXAMPLE}
            },
        }


def _gated(operation: dict[str, Any], responses: dict[str, Any]) -> None:
    """Write what the gate in front of every version does."""
    responses["307"] = {
        "description": SAID[307],
        "headers": {"Location": {"schema": {"type": "string"}, "required": True}},
    }
    for status, response in responses.items():
        if status.startswith("2"):
            told = {name: {"$ref": f"#/components/headers/{name}"} for name in _TOLD}
            response["headers"] = {**told, **response.get("headers", {})}
    operation.setdefault("parameters", []).extend(
        [
            {
                "name": SCHEMA_HEADER,
                "in": "header",
                "description": "the fingerprint of the schema that is meant",
                "schema": {"type": "string"},
            },
            {
                "name": WIRING_HEADER,
                "in": "header",
                "description": "the wiring that is meant, as JSON",
                "schema": {"type": "string"},
            },
        ]
    )


_TOLD = (DATASET_HEADER, VERSION_HEADER, SCHEMA_HEADER, REQUEST_ID_HEADER)
