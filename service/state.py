"""What every route works with: made once by `create_app`, never changed.

`service.access.auth` is below this module and finds what it needs at `request.app.state.service` by itself.
"""

from dataclasses import dataclass
from typing import cast

from fastapi import Request

from service.access.auth import Auth
from service.access.limits import Limits
from service.metrics import Metrics
from service.served.catalog import Catalog
from service.served.gate import Gate
from service.settings import Settings


@dataclass(frozen=True)
class Service:
    """A service's settings and the things that its routes share."""

    settings: Settings
    catalog: Catalog
    auth: Auth
    limits: Limits
    metrics: Metrics
    gate: Gate


def service_of(request: Request) -> Service:
    """Return the service that a request is answered by."""
    return cast(Service, request.app.state.service)
