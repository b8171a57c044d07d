"""Who may do what: each route states its scope with `requires`, or is one of those that are `PUBLIC`.

A dataset that a key has no grant for is refused before it is looked up, so a refusal (403) tells nothing of
whether there is one.
"""

from dataclasses import dataclass
from typing import Any, Protocol, cast

from fastapi import Depends, Request

from schemas.problem import Problem
from service.caller import Caller, Scope
from service.errors import ForbiddenError, UnauthorizedError
from service.limits import Limits

__all__ = ["PUBLIC", "Auth", "Caller", "Public", "Requires", "Scope", "requires"]


class Auth:
    """Tells who calls: whom a key names or, where that is allowed, an anonymous caller of one scope."""

    def __init__(self, anonymous: Scope | None = "admin") -> None:
        self._anonymous = anonymous

    def caller(self, request: Request) -> Caller:
        """Return who makes `request`; raises `UnauthorizedError` when nobody that is known does."""
        if self._anonymous is None:
            raise UnauthorizedError("who asks is not known", [])
        return Caller(key_id=None, name="anonymous", scope=self._anonymous)


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
        service = cast(_Service, request.app.state.service)
        caller = service.auth.caller(request)
        request.state.caller = caller
        service.limits.take_request(caller)
        problems = []
        if not caller.may(self.scope):
            message = f"expected scope {self.scope}, got {caller.scope}"
            repair = f"ask for a key of scope {self.scope}"
            problems.append(Problem(where="key", kind="scope", message=message, repair=repair))
        dataset = request.path_params.get("dataset")
        if dataset is not None and not caller.sees(dataset):
            message = f"expected a grant for {dataset!r}, got none"
            repair = "ask for a key that names it"
            problems.append(Problem(where="key", kind="grant", message=message, repair=repair))
        if problems:
            raise ForbiddenError("this key may not do that", problems)
        return caller


@dataclass(frozen=True)
class Public:
    """The dependency of a route that anybody may ask; it says so."""

    async def __call__(self, request: Request) -> None:
        request.state.caller = None


def requires(scope: Scope) -> Any:
    """Return the dependency of a route: `caller: Annotated[Caller, requires("read")]`.

    It answers 401 to who is not known, 403 to who may not, and 429 to who asks too often.
    """
    return Depends(Requires(scope))


PUBLIC = Depends(Public())
"""What a public route says: `@router.get("/healthz", dependencies=[PUBLIC])`."""
