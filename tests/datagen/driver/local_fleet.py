"""A fleet of one worker in the test's own process: it is asked as the driver asks, without Ray."""

from typing import Any

from datagen.checks import Calibration
from datagen.config import RunConfig
from datagen.driver.driver import open_job, work_order
from datagen.worker.actor import Worker


class LocalFleet:
    """Stands for `datagen.driver.fleet.Fleet` in an audit."""

    def __init__(self, config: RunConfig) -> None:
        self.job = open_job(config)
        self.worker = Worker(work_order(self.job))
        self.calibration = Calibration()

    def call_first(self, method: str, *arguments: object) -> Any:
        return getattr(self.worker, method)(*arguments)

    def calibrate(self, calibration: Calibration) -> str:
        self.calibration = calibration
        return self.worker.calibrate(calibration)

    def close(self) -> None:
        self.worker._engine.close()


class Said:
    """A reporter that keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, event: str, message: str, **_facts: object) -> None:
        self.lines.append(f"{event}: {message}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
