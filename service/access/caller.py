"""Who asks and what they may: a scope, which includes those below it, and the datasets that are granted."""

from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["read", "manage", "admin"]
"""`read` fetches; `manage` also makes versions; `admin` also deletes bytes. Each includes those before it."""

SCOPES: tuple[Scope, ...] = get_args(Scope)
EVERY_DATASET = "*"


@dataclass(frozen=True)
class Caller:
    """Who makes a request.

    >>> caller = Caller(key_id="0f", name="trainer", scope="manage", datasets=("demo",))
    >>> caller.may("read"), caller.may("admin"), caller.sees("demo"), caller.sees("other")
    (True, False, True, False)
    """

    key_id: str | None
    """None is an anonymous caller."""
    name: str
    scope: Scope
    datasets: tuple[str, ...] = (EVERY_DATASET,)
    """Names of datasets, or `*` for all there are."""

    def may(self, scope: Scope) -> bool:
        """Say whether the caller's scope includes `scope`."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def sees(self, dataset: str) -> bool:
        """Say whether `dataset` is granted; this tells nothing of whether there is one."""
        return EVERY_DATASET in self.datasets or dataset in self.datasets
