"""Who the workers are: refused where they are others than the driver read; what their engine says."""

from collections.abc import Mapping, Sequence

from datagen.driver.sameness import differences
from datagen.engines.said import in_a_line, said_by
from datagen.engines.settings import EngineSettings
from datagen.errors import FleetError
from datagen.planning.preparation import Preparation
from datagen.progress import Reporter
from datagen.worker.actor import WorkerFacts


def greet(
    workers: Sequence[WorkerFacts], prepared: Preparation, engine: EngineSettings, reporter: Reporter
) -> Mapping[str, str]:
    """Say who is there, and return what their engine says of itself, by name.

    Raises `FleetError` for workers whose software or model is not what was read here: mixed ones make mixed
    content.
    """
    version, identity = prepared.provenance.engine_version, prepared.target.identity()
    problems = differences(workers, version, identity, engine.model)
    if problems:
        raise FleetError("the workers do not run what this run declares", problems)
    first = workers[0].engine
    reporter.say(
        "fleet",
        f"{len(workers)} workers ready: {first.name} on {first.device}, {first.dtype}, {first.version}",
        workers=len(workers),
        hosts=sorted({worker.host for worker in workers}),
    )
    said = said_by([worker.engine.extra for worker in workers])
    if said:
        reporter.say("engine", in_a_line(said), says=dict(said))
    return said
