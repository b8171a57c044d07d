"""What can be read of settings of which some are wrong: these stand at their defaults, so that all others can
be held against one another.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from datagen.engines.settings import LENIENT
from datagen.flags import ENV_DELIMITER, ENV_PREFIX
from datagen.run_settings import RunConfig, section_of
from schemas.problem import Problem


def readable(values: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of `values`, as nested as it is, without what is wrong in it.

    A required setting that is missing is `None`.
    """
    sections: dict[str, Any] = {}
    for name, field in RunConfig.model_fields.items():
        section = section_of(field.annotation)
        if section is None or (values.get(name) is None and not field.is_required()):
            sections[name] = field.get_default(call_default_factory=True)
        else:
            given = values.get(name)
            sections[name] = _readable(section, given if isinstance(given, Mapping) else {})
    return RunConfig.model_construct(**sections)


def wrong_settings(problems: Sequence[Problem]) -> set[str]:
    """Return the settings that problems are about, whether a flag, a variable or a file gave them.

    >>> told = [Problem(where=name, kind="k", message="m") for name in ("a.b", "--c.d", "STRATA_E__F")]
    >>> sorted(wrong_settings(told))
    ['a.b', 'c.d', 'e.f']
    """
    return {
        problem.where.removeprefix(ENV_PREFIX).lower().replace(ENV_DELIMITER, ".")
        if problem.where.startswith(ENV_PREFIX)
        else problem.where.removeprefix("--")
        for problem in problems
    }


def _readable(section: type[BaseModel], given: Mapping[str, Any]) -> BaseModel:
    values = deepcopy(dict(given))
    while True:
        try:
            return section.model_validate(values, context=LENIENT)
        except ValidationError as error:
            places = [one["loc"] for one in error.errors(include_url=False, include_context=False)]
        before = deepcopy(values)
        for place in places:
            _drop(values, place)
        if values == before:
            names = {str(place[0]) for place in places if len(place) == 1}
            missing: dict[str, Any] = {
                name: (Any, None) for name in names if section.model_fields[name].is_required()
            }
            if not missing:
                return section.model_construct(**values)
            section = create_model(section.__name__, __base__=section, **missing)


def _drop(values: dict[str, Any], place: Sequence[int | str]) -> None:
    """Take out the deepest value on the way to a place, if there is one."""
    name = place[0] if place else None
    if name not in values:
        return
    inside = values[name]
    if isinstance(inside, dict) and len(place) > 1 and place[1] in inside:
        _drop(inside, place[1:])
    else:
        del values[name]
