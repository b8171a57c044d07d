"""Every format that can be brought in, as `--format` names it: the same names as the export's."""

from collections.abc import Mapping

from datagen.adapters.imports.automodel import AutomodelFiles
from datagen.adapters.imports.deepspec import DeepSpecFiles
from datagen.adapters.imports.format import ImportFormat
from datagen.adapters.imports.speculators_files import SpeculatorsImport
from datagen.adapters.imports.torch_samples import TORCH_FORMATS
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
