"""What a check of wirings reads: the configs of draft and target, a wiring file, a schema."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datagen.errors import ConfigError
from datagen.planning.plan import target_of_config
from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.opening import open_door
from schemas.card import Card
from schemas.consumers.resolution import Shape, short
from schemas.judging import DatasetFacts
from schemas.problem import Problem
from schemas.reference import parse_reference
from schemas.sides import WiringFile
from schemas.target import Target

MAX_CONFIG_BYTES = 8 << 20
MAX_LAYERS = 10_000


def read_dataset(text: str) -> DatasetFacts:
    """Read the schema of `ROOT/DATASET[@VERSION]`; raises `NotFoundError` when it is not there."""
    reference = parse_reference(text)
    try:
        snapshot = Dataset.open(open_door(reference.root), reference.dataset).snapshot(reference.version)
    except NotFoundError as error:
        repair = "write one that is there, as ROOT/DATASET[@VERSION]; `strata show` says what it holds"
        problems = [p.model_copy(update={"repair": p.repair or repair}) for p in error.problems]
        raise NotFoundError(error.headline, problems) from error
    reference = reference._replace(version=snapshot.version.number)
    return DatasetFacts(str(reference), snapshot.schema, snapshot.version, snapshot.final_norm())


def read_json(file: Path, what: str) -> Mapping[str, Any]:
    """Read a JSON object from a file, or from `config.json` in a folder.

    Raises `ConfigError` that says what the file is instead.
    """
    path = file / "config.json" if file.is_dir() else file
    try:
        size = path.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path}: expected {what}, got {size:,} bytes: too large for one")
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_each_once)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: expected {what}, got no such file") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: expected {what}, got: {str(error)[:200]}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected {what}, a JSON object, got {type(content).__name__}")
    return content


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raises `ValueError` where a key stands twice, of which readers take the last."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1}) if len(keys) < 1000 else ["(many keys)"]
        raise ValueError(f"the key {short(', '.join(twice))} twice in one object, where each may stand once")
    return content


def read_text(file: Path, what: str) -> str:
    """Read a text file; raises `ConfigError` that says what it is instead."""
    try:
        size = file.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{file}: expected {what}, got {size:,} bytes: too large for one")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: expected {what}, got no such file") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: expected {what}, got: {error}") from error


def read_wiring(file: Path | None) -> WiringFile | None:
    """Read a wiring of one's own, where one is named; raises `ConfigError` as `read_text` does."""
    return None if file is None else WiringFile(read_text(file, "a wiring file"), file.name)


def shape_of(
    dataset: DatasetFacts | None, card: Card | None, target_config: Path | None
) -> tuple[Shape, Target | None]:
    """Return the target's shape, from its config where one is given, else from the card or the dataset.

    Raises `ConfigError` when none of the three is there.
    """
    if target_config is not None:
        path = target_config / "config.json" if target_config.is_dir() else target_config
        _check_target_config(read_json(path, "the target's config.json"), path)
        target = target_of_config(path)
        return Shape(model_type=target.model_type, n_layers=target.n_layers), target
    known = dataset.schema.target if dataset else card.target if card else None
    if known is None:
        problem = Problem(
            where="--target-config",
            kind="missing",
            message="expected the target's config.json, got none",
            repair="a dataset or a card says which target it is; without either the config must",
        )
        raise ConfigError("the target's depth and architecture are not known", [problem])
    return Shape(model_type=known.model_type, n_layers=known.n_layers), None


def _check_target_config(content: Mapping[str, Any], path: Path) -> None:
    """Raise `ConfigError` with everything that is of another type than a model's shape can be read from."""
    text = content.get("text_config", {})
    body = text if isinstance(text, Mapping) and "text_config" in content else content
    names = content.get("architectures")
    is_named = isinstance(names, list) and all(isinstance(name, str) for name in names)
    n_layers = body.get("num_hidden_layers")
    found = (
        ("text_config", "an object", text, isinstance(text, Mapping)),
        ("architectures", "a list of names", names, is_named or names is None),
        (
            "model_type",
            "a name",
            content.get("model_type", ""),
            isinstance(content.get("model_type", ""), str),
        ),
        *(
            (
                name,
                "a whole number",
                body.get(name),
                isinstance(body.get(name), int) and body[name] is not True,
            )
            for name in ("num_hidden_layers", "hidden_size", "vocab_size")
        ),
        *(
            (name, "at least 1", body.get(name), not isinstance(body.get(name), int) or body[name] > 0)
            for name in ("num_hidden_layers", "hidden_size", "vocab_size")
        ),
        ("num_hidden_layers", f"at most {MAX_LAYERS}", n_layers, _at_most(n_layers, MAX_LAYERS)),
    )
    problems = [
        Problem(
            where=f"{path}: {name}",
            kind="config",
            message=f"expected {expected}, got {short(value)}",
            repair="give the target's own config.json, as it lies beside its weights",
        )
        for name, expected, value, is_right in found
        if not is_right
    ]
    if problems:
        raise ConfigError("the model's shape is not in its config.json", problems)


def _at_most(value: object, limit: int) -> bool:
    return not isinstance(value, int) or value <= limit
