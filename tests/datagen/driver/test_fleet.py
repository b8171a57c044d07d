"""Workers that die, as the driver sees them: what they were at, and what they know when they are back."""

import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from datagen.checks import Calibration, NormProfile
from datagen.driver.driver import open_job, work_order
from datagen.driver.fleet import Fleet
from datagen.driver.replica import Lost, Made, Told
from datagen.engines.errors import OpeningError
from datagen.errors import FleetError
from datagen.planning.units import Unit
from datagen.worker.actor import Worker
from tests.datagen.driver.deadly_worker import (
    DEADLY_LENGTH,
    CalibratedWorker,
    UnloadableWorker,
)
from tests.datagen.prompt_builders import random_prompts
from tests.datagen.run_builders import synthetic_config, write_prompts

pytestmark = pytest.mark.usefixtures("cluster")

PATIENCE_SECONDS = 300.0
"""How long what must come is waited for; nothing is measured by it."""


def fleet_of(folder: Path, worker: type[Worker], **changes: object) -> Fleet:
    write_prompts(folder / "prompts.jsonl", [10])
    config = synthetic_config(folder, **changes)
    return Fleet(work_order(open_job(config)), config.workers, config.ray, worker)


def all_that_came(fleet: Fleet, count: int) -> list[Made | Lost]:
    came: list[Made | Lost] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(came) < count and time.monotonic() < deadline:
        came += [one for one in fleet.wait(0.25) if not isinstance(one, Told)]
    return came


def test_a_dead_worker_is_handed_nothing_until_it_is_back_and_knows_the_calibration(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, CalibratedWorker)
    try:
        fleet.start(1)
        calibration = Calibration({"embed": NormProfile(median=64.0, p90=64.5, p99=65.0, largest=66.0)})
        fleet.calibrate(calibration)
        deadly = Unit("deadly", tuple(random_prompts([DEADLY_LENGTH])))
        waiting = Unit("waiting", tuple(random_prompts([5], seed=1)))
        fleet.hand_out(deadly)
        fleet.hand_out(waiting)
        came = {item.unit.number: item for item in all_that_came(fleet, 2)}
        for lost in came.values():
            assert isinstance(lost, Lost)
            assert (lost.running, lost.died) == (False, True)  # not known to be to blame
        assert not fleet.wanting()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not fleet.wanting() and time.monotonic() < deadline:
            fleet.wait(0.25)
        assert fleet.call_first("calibration") == calibration
        fleet.hand_out(waiting)
        (made,) = all_that_came(fleet, 1)
        assert isinstance(made, Made)
    finally:
        fleet.close()


def test_a_worker_that_comes_back_with_other_software_or_another_model_is_refused(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, Worker)
    facts = Worker(fleet._order).come_back(Calibration())
    fleet._first = facts
    fleet._check(replace(facts, host="elsewhere", pid=7))
    newer = replace(facts, host="elsewhere", engine=replace(facts.engine, version="another one"))
    with pytest.raises(FleetError, match=r"a worker came back .*\n.*worker on elsewhere.*got another one"):
        fleet._check(newer)
    other = replace(facts, target=facts.target.model_copy(update={"n_layers": 9}))
    with pytest.raises(FleetError, match="got another one under the same name"):
        fleet._check(other)


def test_why_a_worker_cannot_load_reaches_the_driver_as_the_error_that_it_is(tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path, UnloadableWorker)
    try:
        with pytest.raises(OpeningError, match="expected all weights, got 3 of 9"):
            fleet.start(1)
    finally:
        fleet.close()


def test_a_cluster_that_is_not_there_is_told_with_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datagen.driver.cluster.ray.is_initialized", lambda: False)

    def refuse(**_: object) -> None:
        raise ConnectionError("Failed to connect to GCS at 127.0.0.1:1")

    monkeypatch.setattr("datagen.driver.cluster.ray.init", refuse)
    with socket.create_server(("127.0.0.1", 0)) as another:
        address = f"127.0.0.1:{another.getsockname()[1]}"
        fleet = fleet_of(tmp_path, Worker, ray__address=address)
        with pytest.raises(FleetError, match=f"expected a Ray cluster at {address}, got: Failed to connect"):
            fleet.start(1)
    with pytest.raises(FleetError, match=f"expected a Ray cluster at {address}, got: nothing answers there"):
        fleet.start(1)
