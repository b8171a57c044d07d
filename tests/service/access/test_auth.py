"""Every route of the application states its scope, and refuses whoever may not, before it does anything."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts

from datagen.store.door import Door
from service.access.auth import Auth, Public, Requires, auth_for
from service.access.caller import SCOPES, Scope
from service.access.keys import KeyFile, NewKey
from service.access.origin import is_loopback
from service.app import create_app
from service.errors import KeyFileError, SettingsError
from tests.service.in_process import InProcess
from tests.service.serving import make_dataset, settings_of

PUBLIC_PATHS = {"/healthz", "/readyz", "/metrics"}
"""Routes of ours that anybody may ask."""

OF_FASTAPI = {"/openapi.json", "/docs", "/docs/oauth2-redirect"}
"""What FastAPI adds: the description of the routes, which is the same for everybody."""

READING_POSTS = {"batch", "locations", "check", "compare"}
"""What is asked with POST because of the size of the question; it changes nothing."""


class Route(NamedTuple):
    """One method of one path, and what it states."""

    method: str
    path: str
    states: tuple[Requires | Public, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def scope(self) -> Scope:
        (stated,) = self.states
        assert isinstance(stated, Requires)
        return stated.scope

    def url(self, dataset: str = "demo") -> str:
        filled = self.path.replace("{dataset}", dataset).replace("{version}", "1")
        return re.sub(r"\{[^}]*\}", "0" * 64, filled)


def stated_by(dependant: Dependant) -> Iterator[Requires | Public]:
    for needed in dependant.dependencies:
        if isinstance(needed.call, Requires | Public):
            yield needed.call
        yield from stated_by(needed)


def routes() -> list[Route]:
    found = []
    app = create_app(settings_of("nowhere"))
    for context in iter_route_contexts(app.routes):
        if context.path in OF_FASTAPI:
            continue
        dependant = getattr(context, "dependant", None)
        states = tuple(dict.fromkeys(stated_by(dependant))) if dependant else ()
        found += [Route(method, str(context.path), states) for method in sorted(context.methods or {"ANY"})]
    return found


ROUTES = routes()
GUARDED = [route for route in ROUTES if not any(isinstance(stated, Public) for stated in route.states)]
OF_A_DATASET = [route for route in GUARDED if "{dataset}" in route.path]


def test_the_walk_finds_the_routes() -> None:
    paths = {route.path for route in ROUTES}
    assert "/v1/datasets" in paths
    described = create_app(settings_of("nowhere")).openapi()["paths"]
    assert set(described) <= paths


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_each_states_one_scope_or_is_public_by_name(route: Route) -> None:
    assert len(route.states) == 1
    assert isinstance(route.states[0], Public) == (route.path in PUBLIC_PATHS)


@pytest.mark.parametrize("route", GUARDED, ids=str)
def test_what_changes_something_needs_more_than_read(route: Route) -> None:
    reads = route.method in ("GET", "HEAD") or route.path.rsplit("/", 1)[-1] in READING_POSTS
    assert reads == (route.scope == "read")


class Doors(NamedTuple):
    """A service that needs keys, and keys for it."""

    client: InProcess
    file: KeyFile
    keys: dict[str, NewKey]

    def ask(self, route: Route, key: str | None, dataset: str = "demo") -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self.client.request(route.method, route.url(dataset), headers=headers, json={})


class _Untouched:
    """A door that fails the test when it is asked anything: a refusal comes before the storage."""

    def __getattr__(self, name: str) -> object:
        if name == "url":
            return "nowhere"
        raise AssertionError(f"the storage was asked: {name}")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Doors:
    file = KeyFile(tmp_path_factory.mktemp("keys") / "keys.json")
    keys: dict[str, NewKey] = {}
    keys |= {scope: file.create(scope, scope) for scope in SCOPES}
    keys |= {f"{scope} of other": file.create(scope, scope, ("other",)) for scope in SCOPES}
    keys["expired"] = file.create("expired", "admin", lives=timedelta(seconds=-1))
    keys["revoked"] = file.create("revoked", "admin")
    file.revoke(keys["revoked"].key.id)
    door: Door = _Untouched()  # type: ignore[assignment]
    app = create_app(settings_of("nowhere", keys=str(file.path), datasets=("demo", "other")), door)
    return Doors(InProcess(app), file, keys)


def problems_of(response: httpx.Response) -> list[dict[str, str]]:
    assert response.headers["content-type"] == "application/problem+json"
    problems: list[dict[str, str]] = response.json()["problems"]
    assert all(problem["repair"] for problem in problems)
    return problems


@pytest.mark.parametrize("route", GUARDED, ids=str)
@pytest.mark.parametrize("dataset", ["demo", "no-such"])
def test_who_is_not_known_is_refused(doors: Doors, route: Route, dataset: str) -> None:
    said = {
        None: "expected a key, got none",
        doors.keys["admin"].written[:-1] + "g": "unknown",
        "strata_" + "a" * 16 + "_" + "b" * 64: "unknown",
        doors.keys["expired"].written: "expired at",
        doors.keys["revoked"].written: "revoked at",
    }
    for key, expected in said.items():
        response = doors.ask(route, key, dataset)
        assert response.status_code == 401, expected
        assert response.headers["www-authenticate"].startswith("Bearer")
        if route.method != "HEAD":
            (problem,) = problems_of(response)
            assert expected in problem["message"]
        assert key is None or key.rsplit("_", 1)[1] not in response.text


@pytest.mark.parametrize("route", [route for route in GUARDED if route.scope != "read"], ids=str)
def test_a_scope_below_is_refused(doors: Doors, route: Route) -> None:
    for scope in SCOPES[: SCOPES.index(route.scope)]:
        response = doors.ask(route, doors.keys[scope].written)
        assert response.status_code == 403
        assert [problem["message"] for problem in problems_of(response)] == [
            f"expected scope {route.scope}, got {scope}"
        ]


@pytest.mark.parametrize("route", OF_A_DATASET, ids=str)
def test_a_dataset_without_a_grant_is_refused_whether_or_not_it_is_there(doors: Doors, route: Route) -> None:
    key = doors.keys[f"{route.scope} of other"].written
    for dataset in ("demo", "no-such"):
        response = doors.ask(route, key, dataset)
        assert response.status_code == 403
        if route.method == "HEAD":
            continue
        assert [problem["message"] for problem in problems_of(response)] == [
            f"expected a grant for '{dataset}', got other"
        ]


@pytest.fixture(scope="module")
def open_doors(tmp_path_factory: pytest.TempPathFactory) -> Doors:
    """A service over a dataset, and keys that are granted it."""
    root = tmp_path_factory.mktemp("root")
    make_dataset(root / "data", lengths=(3,))
    file = KeyFile(root / "keys.json")
    keys: dict[str, NewKey] = {}
    keys |= {scope: file.create(scope, scope, ("demo",)) for scope in SCOPES}
    return Doors(InProcess(create_app(settings_of(root / "data", keys=str(file.path)))), file, keys)


@pytest.mark.parametrize("route", GUARDED, ids=str)
def test_the_scope_itself_and_those_above_it_are_let_in(open_doors: Doors, route: Route) -> None:
    """Let in, the route goes on: to 200, 404, 422, never to 401, 403, or a failure."""
    for scope in SCOPES[SCOPES.index(route.scope) :]:
        response = open_doors.ask(route, open_doors.keys[scope].written)
        assert response.status_code not in (401, 403)
        assert response.status_code < 500, response.text


def test_two_keys_or_another_kind_are_refused(doors: Doors) -> None:
    url, good = "/v1/datasets", f"Bearer {doors.keys['read'].written}"
    for given in (["Basic YTpi"], ["Bearer"], ["Bearer "], [doors.keys["read"].written], [good, good]):
        response = doors.client.get(url, headers=[("Authorization", value) for value in given])
        assert response.status_code == 401, given
        assert problems_of(response)


def test_a_key_is_heeded_from_when_it_is_made_until_it_is_revoked(tmp_path: Path) -> None:
    """Two applications over one file stand for two worker processes."""
    make_dataset(tmp_path / "data", lengths=(3,))
    file = KeyFile(tmp_path / "keys.json")
    file.create("first", "read")
    settings = settings_of(tmp_path / "data", keys=str(file.path))
    clients = [InProcess(create_app(settings)) for _ in range(2)]

    def statuses(key: str) -> set[int]:
        headers = {"Authorization": f"Bearer {key}"}
        return {client.get("/v1/datasets", headers=headers).status_code for client in clients}

    made = file.create("second", "read")
    assert statuses(made.written) == {200}
    file.revoke(made.key.id)
    assert statuses(made.written) == {401}


def test_keys_that_cannot_be_read_let_nobody_in_and_tell_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = KeyFile(tmp_path / "keys.json")
    key = file.create("trainer", "read").written
    app = create_app(settings_of(tmp_path, keys=str(file.path)))
    client = InProcess(app)
    file.path.write_text(json.dumps({"secret place": str(tmp_path)}))
    response = client.get("/v1/datasets", headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 503
    assert str(tmp_path) not in response.text
    assert "secret place" not in response.text
    assert str(file.path) in caplog.text
    file.path.unlink()
    assert client.get("/v1/datasets", headers={"Authorization": f"Bearer {key}"}).status_code == 503


def test_a_damaged_key_file_is_refused_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"format": "strata.keys.v1", "keys": [{"id": "x"}, 3]}')
    with pytest.raises(KeyFileError) as caught:
        create_app(settings_of(tmp_path, keys=str(path)))
    assert {problem.where.rsplit(".", 1)[0] for problem in caught.value.problems} == {"keys.0", "keys"}


def test_who_may_ask_which_address() -> None:
    assert auth_for("127.0.0.1", None, None) == Auth("admin", None, only_loopback=True)
    assert auth_for("::1", None, "read") == Auth("read", None, only_loopback=True)
    assert auth_for("0.0.0.0", None, "read") == Auth("read", None, only_loopback=False)
    for host in ("0.0.0.0", "::", "10.1.2.3", "gpu1.example", ""):
        assert not is_loopback(host)
        with pytest.raises(SettingsError, match=r"strata keys create.*--anonymous read"):
            auth_for(host, None, None)


def local_client(tmp_path: Path) -> InProcess:
    make_dataset(tmp_path, lengths=(3,))
    return InProcess(create_app(settings_of(tmp_path)), base_url="http://127.0.0.1:8350")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8350", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8350", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost:8350@evil.example", 403),
        ("evil.example#localhost", 403),
        ("localhost/evil", 403),
        ("[::1", 403),
        ("localhost:port", 403),
        ("", 403),
        ("192.168.0.7", 403),
    ],
)
def test_on_loopback_the_host_is_a_name_of_it(tmp_path: Path, host: str, status: int) -> None:
    """A page under its own name that now points here (DNS rebinding) reads nothing."""
    client = local_client(tmp_path)
    paths = ["/v1/datasets", *sorted(PUBLIC_PATHS & {route.path for route in ROUTES})]
    assert {client.get(path, headers={"Host": host}).status_code for path in paths} == {status}


@pytest.mark.parametrize(
    ("origin", "refused"),
    [
        (None, False),
        ("http://127.0.0.1:8350", False),
        ("http://evil.example", True),
        ("http://127.0.0.1:9999", True),
        ("http://localhost:8350", True),
        ("null", True),
        ("http://[", True),
    ],
)
def test_another_sites_page_writes_nothing(tmp_path: Path, origin: str | None, refused: bool) -> None:
    client = local_client(tmp_path)
    headers = {} if origin is None else {"Origin": origin}
    writes = [route for route in GUARDED if route.method not in ("GET", "HEAD")]
    for route in writes:
        response = client.request(route.method, route.url(), headers=headers, json={})
        assert (response.status_code == 403) == refused, str(route)
    assert client.get("/v1/datasets", headers=headers).status_code == 200


def test_expiry_is_judged_by_the_clock_at_each_request(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    made = file.create("trainer", "read", lives=timedelta(hours=1))
    app = create_app(settings_of(tmp_path, keys=str(file.path)))
    client = InProcess(app)
    headers = {"Authorization": f"Bearer {made.written}"}
    assert client.get("/v1/datasets", headers=headers).status_code == 200
    later = datetime.now(UTC) + timedelta(hours=2)
    service = app.state.service
    object.__setattr__(service, "auth", Auth(None, file, now=lambda: later))
    assert client.get("/v1/datasets", headers=headers).status_code == 401


def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    client = InProcess(
        create_app(settings_of(tmp_path, requests_per_second=0.01)), base_url="http://localhost"
    )
    assert client.get("/v1/datasets").status_code == 200
    response = client.get("/v1/datasets")
    assert response.status_code == 429
    assert 1 <= int(response.headers["retry-after"]) <= 100
    (problem,) = problems_of(response)
    assert "ask again in" in problem["repair"]
