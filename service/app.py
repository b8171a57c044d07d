"""The application: its routes, its errors, and what they share, put together."""

from functools import partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from datagen.store.door import Door
from datagen.store.opening import open_door
from schemas.errors import StrataError
from service.access.auth import auth_for
from service.access.limits import Allowances, Limits
from service.asked.versioned import MovedError
from service.edge.openapi import document
from service.edge.request_log import RequestLog
from service.edge.request_size import RequestSize
from service.edge.responses import of_error, of_http, of_moved, of_validation
from service.metrics import Metrics
from service.routes import check, health, listing, locations, manage, order, samples, tensors, versions
from service.served.catalog import Catalog
from service.served.gate import Gate
from service.settings import Settings
from service.state import Service


def create_app(settings: Settings, door: Door | None = None) -> FastAPI:
    """Return the application that serves the datasets of a root; nothing is read yet."""
    metrics = Metrics()
    limits = Limits(allowances_of(settings))
    app = FastAPI(title="Strata", version="1", redoc_url=None, redirect_slashes=False)
    app.state.service = Service(
        settings=settings,
        catalog=Catalog(door or open_door(settings.root), settings.datasets),
        auth=auth_for(settings.host, settings.keys, settings.anonymous),
        limits=limits,
        metrics=metrics,
        gate=Gate(metrics),
    )
    app.include_router(listing.router)
    app.include_router(versions.router)
    app.include_router(samples.router)
    app.include_router(order.router)
    app.include_router(tensors.router)
    app.include_router(locations.router)
    app.include_router(manage.router)
    app.include_router(check.router)
    app.include_router(health.router)
    app.openapi = partial(document, app)  # type: ignore[method-assign]
    app.add_middleware(RequestSize, limits=limits)
    app.add_middleware(RequestLog, metrics=metrics)
    app.add_exception_handler(StrataError, of_error)
    app.add_exception_handler(RequestValidationError, of_validation)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(MovedError, of_moved)
    return app


def allowances_of(settings: Settings) -> Allowances:
    """Return what the settings allow a caller to ask for."""
    return Allowances(
        requests_per_second=settings.requests_per_second,
        bytes_per_second=settings.bytes_per_second,
        bytes_in_flight=settings.max_bytes_in_flight,
        response_bytes=settings.max_response_bytes,
        request_bytes=settings.max_request_bytes,
    )
