"""Who may do what: each route states its scope with `requires`, or is one of those that are `PUBLIC`.

A dataset that a key has no grant for is refused before it is looked up, so a refusal (403) tells nothing of
whether there is one.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, cast

from fastapi import Depends, Request

from schemas.problem import Problem
from service.access.caller import Caller, Scope
from service.access.keys import Key, KeyFile
from service.access.limits import Limits
from service.access.origin import host_problems, is_loopback, origin_problems
from service.errors import ForbiddenError, KeyFileError, NotReadyError, SettingsError, UnauthorizedError

__all__ = ["PUBLIC", "Auth", "Caller", "Public", "Requires", "Scope", "auth_for", "requires"]

_LOG = logging.getLogger(__name__)
_WRITE_IT = "send `Authorization: Bearer strata_...`, as `strata keys create` printed it"
_ANOTHER = "ask for another: `strata keys create` makes one"


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Auth:
    """Tells who calls: whom a key names or, where that is allowed, an anonymous caller of one scope."""

    anonymous: Scope | None
    """What a caller without a key may; None: nothing."""
    keys: KeyFile | None = None
    only_loopback: bool = False
    """Whether a caller without a key must have asked for a name of loopback."""
    now: Callable[[], datetime] = _now

    def caller(self, request: Request) -> Caller:
        """Return who makes `request`.

        Raises `UnauthorizedError` when nobody that is known does, `ForbiddenError` when another site may have
        made a browser ask, and `NotReadyError` when the keys cannot be read. Without keys,
        one that is sent says nothing.
        """
        given = request.headers.getlist("authorization")
        if not given or self.keys is None:
            return self._anonymous_caller(request)
        kind, _, written = given[0].partition(" ")
        if len(given) > 1 or kind.lower() != "bearer":
            got = f"{len(given)} of them" if len(given) > 1 else f"one of kind {kind[:20]!r}"
            raise _unauthorized(f"expected one header of kind 'Bearer', got {got}", _WRITE_IT)
        return self._keyed_caller(self.keys, written.strip())

    def check_public(self, request: Request) -> None:
        """Raise `ForbiddenError` when another site may have made a browser ask a public route."""
        if self.only_loopback:
            _refuse_other_sites(list(host_problems(request.headers.getlist("host"))))

    def _anonymous_caller(self, request: Request) -> Caller:
        if self.anonymous is None:
            raise _unauthorized("expected a key, got none", _WRITE_IT)
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        problems = list(host_problems(hosts)) if self.only_loopback else []
        _refuse_other_sites([*problems, *origin_problems(request.method, hosts, origins)])
        return Caller(key_id=None, name="anonymous", scope=self.anonymous)

    def _keyed_caller(self, file: KeyFile, written: str) -> Caller:
        try:
            key = file.read().with_secret(written)
        except KeyFileError as error:
            # What is in the file is for who runs the service, not for who asks.
            _LOG.error("%s", error)
            problem = Problem(
                where="keys", kind="unreadable", message="expected a readable key file, got none"
            )
            raise NotReadyError("the service cannot read its keys; its log says why", [problem]) from error
        if key is None:
            raise _unauthorized("expected a key of this service, got one that is unknown", _ANOTHER)
        state = key.state(self.now())
        if state != "valid":
            raise _unauthorized(f"expected a valid key, got {key.id}, {_since(key)}", _ANOTHER)
        return Caller(key_id=key.id, name=key.name, scope=key.scope, datasets=key.datasets)


def auth_for(host: str, keys: Path | None, anonymous: Scope | None) -> Auth:
    """Return who may ask a service that listens on `host`.

    Without keys, and unless said otherwise, callers from this machine may do everything, and no other address
    is served. Raises `SettingsError` then, and `KeyFileError` when the keys cannot be read.
    """
    file = None if keys is None else KeyFile(keys)
    if file is not None:
        file.read()
    local = is_loopback(host)
    if file is None and anonymous is None:
        if not local:
            problem = Problem(
                where="host",
                kind="anonymous",
                message=f"expected keys, or a loopback address, got {host!r} without keys",
                repair="make a key (`strata keys create`) and give `--keys FILE`, or give `--anonymous read`",
            )
            raise SettingsError("anybody could do anything", [problem])
        anonymous = "admin"
    return Auth(anonymous, file, only_loopback=local and anonymous is not None)


class _Service(Protocol):
    """What of `service.state.Service` is needed here; that module imports this one."""

    @property
    def auth(self) -> Auth: ...
    @property
    def limits(self) -> Limits: ...


@dataclass(frozen=True)
class Requires:
    """The dependency of a route that needs `scope`, and a grant where its path names a `dataset`."""

    scope: Scope

    async def __call__(self, request: Request) -> Caller:
        """Return who asks; raises `UnauthorizedError`, `TooManyError`, `ForbiddenError`."""
        service = cast(_Service, request.app.state.service)
        caller = service.auth.caller(request)
        request.state.caller = caller
        service.limits.take_request(caller)
        problems = list(_refused(caller, self.scope, request.path_params.get("dataset")))
        if problems:
            raise ForbiddenError("this caller may not do that", problems)
        return caller


@dataclass(frozen=True)
class Public:
    """The dependency of a route that anybody may ask, which says so."""

    async def __call__(self, request: Request) -> None:
        """Refuse nobody but a browser that another site makes ask loopback."""
        cast(_Service, request.app.state.service).auth.check_public(request)


def requires(scope: Scope) -> Any:
    """Return the dependency of a route: `caller: Annotated[Caller, requires("read")]`.

    It answers 401 to who is not known, 403 to who may not, and 429 to who asks too often.
    """
    return Depends(Requires(scope))


PUBLIC = Depends(Public())
"""What a public route says: `@router.get("/healthz", dependencies=[PUBLIC])`."""


def _refused(caller: Caller, scope: Scope, dataset: str | None) -> Iterator[Problem]:
    if not caller.may(scope):
        message = f"expected scope {scope}, got {caller.scope}"
        repair = f"ask with a key of scope {scope}"
        yield Problem(where=f"caller {caller.name}", kind="scope", message=message, repair=repair)
    if dataset is not None and not caller.sees(dataset):
        message = f"expected a grant for {dataset!r}, got {', '.join(caller.datasets)}"
        repair = "ask with a key that is granted it"
        yield Problem(where=f"caller {caller.name}", kind="grant", message=message, repair=repair)


def _refuse_other_sites(problems: list[Problem]) -> None:
    if problems:
        raise ForbiddenError("without a key, only this machine's own programs may ask", problems)


def _unauthorized(message: str, repair: str) -> UnauthorizedError:
    problem = Problem(where="header.authorization", kind="key", message=message, repair=repair)
    return UnauthorizedError("who asks is not known", [problem])


def _since(key: Key) -> str:
    if key.revoked_at is not None:
        return f"revoked at {key.revoked_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    assert key.expires_at is not None
    return f"expired at {key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
