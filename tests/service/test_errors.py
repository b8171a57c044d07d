"""Every error has a status of its own choice, and the drawing of the hierarchy is the hierarchy."""

import inspect

import datagen.store.errors
import schemas.errors
import service.errors
from schemas.errors import StrataError
from service.edge.openapi import SAID
from service.errors import STATUS, ServiceError, status_of


def errors_of(module: object) -> list[type[StrataError]]:
    found = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, StrataError)]


def test_every_error_that_a_route_may_raise_has_a_status() -> None:
    kinds = {
        kind
        for module in (schemas.errors, datagen.store.errors, service.errors)
        for kind in errors_of(module)
    }
    for kind in kinds:
        assert status_of(kind) in SAID
    unsaid = {kind.__name__ for kind in kinds if status_of(kind) == 500 and kind not in STATUS}
    # Roots, and what is told when the service starts: no route raises them.
    assert unsaid <= {"StrataError", "StoreError", "ServiceError", "SettingsError", "KeyFileError"}


def test_the_nearest_status_above_counts() -> None:
    class Odd(service.errors.MismatchError):
        pass

    assert status_of(Odd) == 409


def test_the_drawing_shows_every_error() -> None:
    drawn = service.errors.__doc__ or ""
    for kind in errors_of(service.errors):
        if issubclass(kind, ServiceError):
            assert f"+-- {kind.__name__}" in drawn
