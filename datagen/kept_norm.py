"""The target's final norm for a dataset: the one that it keeps, else the one of the model that is given."""

from datagen.engines.final_norm import final_norm_of, model_final_norm
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError
from datagen.store.dataset import Dataset
from datagen.store.snapshot import Snapshot
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.errors import StrataError
from schemas.final_norm import FinalNorm
from schemas.problem import Problem
from schemas.schema import Schema
from schemas.target import Target


def norm_of(snapshot: Snapshot, model: str | None) -> FinalNorm | None:
    """Return the norm that a version's dataset keeps; else, where it is needed, that of `model`.

    A model is a folder or a hub id. Where a norm is kept, the model's must be the same.

    Raises `ConfigError` where `model` is not the dataset's target, `OpeningError` where its files do not tell
    the norm, and `CorruptError` where the kept one is damaged.
    """
    kept, names = snapshot.final_norm(), snapshot.schema.names
    if model is None or (kept is None and (FINAL_NORMED in names or FINAL not in names)):
        return kept
    given = norm_of_model(model, snapshot.schema.target)
    if kept is not None and given.content != kept.content:
        told = [f"{norm.recipe}; weights {norm.sha256[:16]}" for norm in (kept, given)]
        message = f"expected the norm that the dataset keeps ({told[0]}), got {told[1]}"
        repair = "leave it out, or give the model that the dataset was made with"
        problem = Problem(where=model, kind="final_norm", message=message, repair=repair)
        raise ConfigError(
            f"{model} is not {snapshot.schema.target.model_id}, whose states these are", [problem]
        )
    return kept or given


def norm_of_model(model: str, target: Target) -> FinalNorm:
    """Return the norm of a model that must be `target`; raises as `norm_of` does."""
    norm = model_final_norm(model)
    if problems := norm.problems(target):
        raise ConfigError(f"{model} is not {target.model_id}, whose states these are", problems)
    return norm


def keep_norm_of_model(dataset: Dataset, schema: Schema, model: str) -> tuple[FinalNorm, bool]:
    """Keep a model's norm with the dataset of its states; return it, and whether it is new.

    Raises as `norm_of_model` does, and `ConflictError` where another norm is kept.
    """
    if FINAL not in schema.names:
        message = f"expected a dataset with {FINAL}, got one of {', '.join(schema.names)}"
        raise ConfigError(
            "there is nothing to norm",
            [Problem(where=FINAL, kind="missing", message=message, repair="capture final, or final_normed")],
        )
    norm = norm_of_model(model, schema.target)
    return norm, dataset.keep_final_norm(schema, norm)


def keep_norm_of_run(dataset: Dataset, schema: Schema, settings: EngineSettings) -> str:
    """Keep the norm of the model that a run captures, where its files tell it; say what came of it.

    Without it a run's states are what they are, so nothing here stops one.
    """
    if FINAL not in schema.names:
        return f"not kept: the dataset has no {FINAL} that it could norm"
    try:
        norm = final_norm_of(settings)
        dataset.keep_final_norm(schema, norm)
    except StrataError as error:
        told = "; ".join(str(problem) for problem in error.problems) or error.headline
        return f"not kept: {told}"
    return f"kept: {norm.recipe}"
