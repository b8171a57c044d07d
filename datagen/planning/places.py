"""Where a root and a model lie, said so that every process understands it the same.

A worker's working folder is not the driver's: a relative path would mean another place there. And inside a
Ray job the driver's own is a copy of what was submitted, which Ray deletes: nothing may be kept in it.
"""

from pathlib import Path

from datagen.engines.settings import EngineSettings
from schemas.problem import Problem

JOB_FOLDER = "_ray_pkg_"
"""In the path of the copy that `ray job submit --working-dir` makes of a folder."""


def is_url(root: str) -> bool:
    """Say whether a root is a URL, which means the same everywhere."""
    return "://" in root


def absolute_root(root: str) -> str:
    """Return a root that does not depend on the working folder."""
    return root if is_url(root) else str(Path(root).absolute())


def absolute_model(engine: EngineSettings) -> EngineSettings:
    """Return settings whose model, where it is a folder, does not depend on the working folder."""
    if engine.model is None or not Path(engine.model).exists():
        return engine  # a hub id
    return engine.model_copy(update={"model": str(Path(engine.model).absolute())})


def root_problems(root: str) -> list[Problem]:
    """Return what is wrong with a root inside a Ray job: a relative one would be deleted with the job."""
    if is_url(root) or Path(root).is_absolute() or JOB_FOLDER not in str(Path.cwd()):
        return []
    return [
        Problem(
            where="output.root",
            kind="root",
            message=f"expected an absolute folder or a bucket inside a Ray job, got {root!r}",
            repair="a relative one lies in the job's copy of its working folder, which Ray deletes",
        )
    ]
