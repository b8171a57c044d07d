"""Every format that can be brought in, as `--format` names it: the same names as the export's."""

from collections.abc import Mapping

from datagen.adapters.automodel_import import AutomodelFiles
from datagen.adapters.deepspec_import import DeepSpecFiles
from datagen.adapters.importing import ImportFormat
from datagen.adapters.speculators_import import SpeculatorsImport
from datagen.adapters.torch_import import TORCH_FORMATS
from datagen.errors import ConfigError
from schemas.problem import Problem

_KNOWN: tuple[ImportFormat, ...] = (SpeculatorsImport(), *TORCH_FORMATS, DeepSpecFiles(), AutomodelFiles())
FORMATS: Mapping[str, ImportFormat] = {known.name: known for known in _KNOWN}


def format_of(name: str) -> ImportFormat:
    """Return a format by its name; raises `ConfigError` that lists those there are."""
    if name not in FORMATS:
        message = f"expected one of {', '.join(FORMATS)}, got {name!r}"
        raise ConfigError("no such format", [Problem(where="--format", kind="format", message=message)])
    return FORMATS[name]
