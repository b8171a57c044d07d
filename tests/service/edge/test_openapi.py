"""The service does what its OpenAPI document says, whatever it is asked: no 5xx, answers as documented."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from service.settings import Settings
from tests.service.serving import make_dataset, serving, settings_of

N_EXAMPLES = 12
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("root")
    ids = sorted(sample.sample_id for seed in (0, 50) for sample in make_dataset(root, seed=seed))
    with serving(root) as url:
        described = schemathesis.openapi.from_url(f"{url}/openapi.json")

        @described.hook
        def map_path_parameters(_: object, given: dict[str, Any] | None) -> dict[str, Any] | None:
            """Name what there is in every second request: else most of them would end at a 404."""
            known = {"dataset": ["demo"], "version": ["1", "2", "latest"], "sample_id": ids}
            for name, value in (given or {}).items():
                at = len(str(value))
                if name in known and at % 2 == 0:
                    given = {**(given or {}), name: known[name][at // 2 % len(known[name])]}
            return given

        yield described


OPERATIONS = [
    (method, path)
    for path, operations in create_app(Settings(root="data")).openapi()["paths"].items()
    for method in operations
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_answer_is_as_documented(api: Any, method: str, path: str) -> None:
    @given(case=api[path][method].as_strategy())
    @settings(
        max_examples=N_EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
        phases=[Phase.generate],
    )
    def ask(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, allow_redirects=False)

    ask()


def test_every_route_is_documented_with_an_example(tmp_path: Path) -> None:
    document = create_app(settings_of(tmp_path)).openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["description"], f"{method} {path}"
            for status, response in operation["responses"].items():
                if status.startswith(("4", "5")):
                    (body,) = response["content"].items()
                    assert body[0] == "application/problem+json", f"{method} {path}: {status}"
                    assert body[1]["example"]["problems"]
            if path.startswith("/v1/"):
                assert {"401", "403", "429"} <= set(operation["responses"])
                assert operation["security"] == [{"key": []}]
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description"), f"{method} {path}: {parameter['name']}"
