"""Whether workers run the same: mixed software, or models, make mixed content."""

from collections.abc import Mapping, Sequence

from datagen.worker.actor import WorkerFacts
from schemas.problem import Problem


def differences(
    workers: Sequence[WorkerFacts], version: str, identity: Mapping[str, object], model: str | None
) -> list[Problem]:
    """Return which workers run other software than `version`, or another model than that of `identity`."""
    problems = [
        Problem(
            where=f"worker on {worker.host}",
            kind="worker",
            message=f"expected {version}, got {worker.engine.version}",
            repair="install the same versions on every node",
        )
        for worker in workers
        if worker.engine.version != version
    ]
    return problems + [
        Problem(
            where=f"worker on {worker.host}",
            kind="worker",
            message="expected the model that the driver reads, got another one under the same name",
            repair=f"put the same files at {model} on every node",
        )
        for worker in workers
        if worker.target.identity() != identity
    ]
