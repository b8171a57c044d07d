"""The loop with doubles of the fleet and the ledger: when a sample that was given up is recorded."""

from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from datagen.driver.loop import Loop
from datagen.driver.replica import Lost, Made, Told
from datagen.driver.schedule import Schedule
from datagen.errors import RunFailedError
from datagen.placement import WorkerSettings
from datagen.planning.units import Unit
from schemas.records import QuarantinedSample
from tests.datagen.prompt_builders import random_prompts

BAD = Unit("0", tuple(random_prompts([5])))
GOOD = Unit("1", tuple(random_prompts([6], seed=1)))
Came = list[Made | Lost | Told]


class Fleet:
    """One worker, of which a test says what comes; `recovering` while it is not known to be well."""

    workers = (0,)
    n_workers = 1

    def __init__(self, script: Callable[["Fleet"], Iterator[Came]]) -> None:
        self.recovering = False
        self.n_in_flight = 0
        self.wound_up = False
        self._script = script(self)

    def wanting(self) -> list[int]:
        return [] if self.recovering or self.n_in_flight else [0]

    def idle(self, worker: int) -> bool:
        return not self.n_in_flight

    def hand_out(self, unit: Unit, worker: int, *, alone: bool) -> None:
        self.alone = alone
        self.n_in_flight += 1

    def wait(self, seconds: float) -> Came:
        came = next(self._script)
        self.n_in_flight -= sum(not isinstance(one, Told) for one in came)
        return came

    def progress(self) -> list[None]:
        return [None]

    def wind_up(self) -> None:
        self.wound_up = True


class Ledger:
    """Notes what it is given, in order."""

    version = None
    n_samples = n_tokens = payload_bytes = n_quarantined = 0

    def __init__(self) -> None:
        self.parts: list[object] = []
        self.rows: list[QuarantinedSample] = []

    def add(self, part: object, rows: list[QuarantinedSample]) -> None:
        self.parts += [] if part is None else [part]
        self.rows += rows

    def refused(self, reasons: frozenset[str]) -> dict[str, int]:
        return {"poison": len(self.rows)}

    def count(self, result: object) -> None:
        pass

    def due(self) -> bool:
        return False

    def commit(self) -> None:
        pass


def made() -> Made:
    return Made(GOOD, cast(Any, MagicMock(part="part", quarantined=(), wrong=())))


def lost(unit: Unit = BAD) -> Lost:
    return Lost(unit, True, "it failed", died=False)


def loop_of(
    fleet: Fleet,
    ledger: Ledger,
    stopping: MagicMock,
    *units: Unit,
    most: int = 100,
    reporter: MagicMock | None = None,
) -> Loop:
    settings = WorkerSettings(unit_attempts=1, max_refused=most)
    schedule, told = Schedule(units, 1), reporter or MagicMock()
    return Loop(settings, "run", cast(Any, fleet), schedule, cast(Any, ledger), told, stopping)


@pytest.fixture
def stopping() -> MagicMock:
    return MagicMock(requested=False, signal_name=None)


def test_nothing_is_recorded_of_a_sample_before_the_worker_is_well_again(stopping: MagicMock) -> None:
    ledger = Ledger()

    def script(fleet: Fleet) -> Iterator[Came]:
        fleet.recovering = True
        yield [lost()]
        assert ledger.rows == []
        yield []
        assert ledger.rows == []
        fleet.recovering = False
        yield []

    loop_of(Fleet(script), ledger, stopping, BAD).work()
    (row,) = ledger.rows
    assert (row.reason, row.prompt_id) == ("poison", BAD.prompts[0].prompt_id)
    assert row.detail == "failed once on 1 worker: last error: it failed"


def test_a_death_that_is_blamed_on_no_unit_is_told_all_the_same(stopping: MagicMock) -> None:
    reporter = MagicMock()

    def script(fleet: Fleet) -> Iterator[Came]:
        yield [Lost(GOOD, False, "the process died", died=True)]
        yield [made()]

    loop_of(Fleet(script), Ledger(), stopping, GOOD, reporter=reporter).work()
    reporter.say.assert_called_once_with("lost", "unit 1, to be made again: the process died")


def test_a_unit_that_is_made_elsewhere_is_proof_too(stopping: MagicMock) -> None:
    ledger = Ledger()

    def script(fleet: Fleet) -> Iterator[Came]:
        yield [lost()]
        fleet.recovering = True
        yield [made()]
        assert [row.reason for row in ledger.rows] == ["poison"]
        assert ledger.parts == ["part"]

    loop_of(Fleet(script), ledger, stopping, BAD, GOOD).work()


def test_a_run_that_stops_by_itself_records_none_that_it_does_not_know(stopping: MagicMock) -> None:
    ledger = Ledger()

    def script(fleet: Fleet) -> Iterator[Came]:
        fleet.recovering = True
        yield [lost()]
        raise RunFailedError("a worker makes nothing")

    with pytest.raises(RunFailedError, match="makes nothing"):
        loop_of(Fleet(script), ledger, stopping, BAD).work()
    assert ledger.rows == []


def test_a_run_that_is_stopped_does_not_wait_to_know(stopping: MagicMock) -> None:
    ledger = Ledger()

    def script(fleet: Fleet) -> Iterator[Came]:
        fleet.recovering = True
        stopping.requested = True
        yield [lost()]

    fleet = Fleet(script)
    loop_of(fleet, ledger, stopping, BAD).work()
    assert (ledger.rows, fleet.wound_up) == ([], True)


def test_the_part_that_proves_a_sample_bad_is_kept_where_no_more_may_be_refused(stopping: MagicMock) -> None:
    ledger = Ledger()

    def script(fleet: Fleet) -> Iterator[Came]:
        fleet.recovering = True
        yield [lost(), made()]

    fleet = Fleet(script)
    fleet.n_in_flight = 1
    with pytest.raises(RunFailedError, match="max_refused = 0"):
        loop_of(fleet, ledger, stopping, BAD, GOOD, most=0).work()
    assert ledger.parts == ["part"]
    assert len(ledger.rows) == 1


def test_of_units_that_were_lost_together_each_is_made_alone(stopping: MagicMock) -> None:
    ledger = Ledger()

    def script(fleet: Fleet) -> Iterator[Came]:
        assert not fleet.alone
        yield [Lost(GOOD, False, "the worker died")]
        assert fleet.alone
        yield [made()]

    loop_of(Fleet(script), ledger, stopping, GOOD).work()
    assert (ledger.parts, ledger.rows) == (["part"], [])


def test_what_is_not_to_blame_goes_back_and_is_made(stopping: MagicMock) -> None:
    ledger = Ledger()

    def script(fleet: Fleet) -> Iterator[Came]:
        yield [Lost(GOOD, False, "CUDA error", died=False), Told(0, "is started anew")]
        yield [made()]

    loop_of(Fleet(script), ledger, stopping, GOOD).work()
    assert (ledger.parts, ledger.rows) == (["part"], [])
