"""One worker as the driver sees it, with a double of Ray: whom it blames, and when it is started anew."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from datagen.checks import Calibration
from datagen.driver import replica as module
from datagen.driver.replica import (
    FAILED_LOADS,
    FAILED_TRIALS,
    LASTING,
    BeyondRepairError,
    Lost,
    Made,
    Replica,
    Told,
)
from datagen.driver.trials import Trials
from datagen.engines.errors import EngineError
from datagen.errors import FleetError, RunFailedError
from datagen.planning.units import Unit
from datagen.store.errors import StoreError
from datagen.worker.making import UnitResult
from schemas.problem import Problem
from tests.datagen.driver.ray_double import Actor, Call, RayDouble
from tests.datagen.prompt_builders import random_prompts

GOOD = random_prompts([3], seed=9)
BROKEN = RuntimeError("CUDA error: an illegal memory access")
AWAY = EngineError(
    "the server did not give the states of the batch",
    [Problem(where="sample 0", kind="server", message="expected an answer, got 500 (6 tries)")],
)
WITHOUT_PART = cast(UnitResult, type("Result", (), {"part": None})())


@dataclass
class Rig:
    """A replica, the actor behind it, and a clock that a test moves."""

    replica: Replica
    ray: RayDouble
    actors: list[Actor]
    clock: list[float]
    trials: Trials = field(default_factory=lambda: Trials(GOOD))

    @property
    def actor(self) -> Actor:
        return self.actors[-1]

    def hand(self, *numbers: str) -> list[Call]:
        for number in numbers:
            self.replica.hand(Unit(number, tuple(random_prompts([5]))))
        return self.actor.calls[-len(numbers) :]

    def came(self) -> list[Made | Lost | Told]:
        ready = {call for _, call in self.replica.in_flight if call.answered}
        return [*self.replica.collect(ready, self.trials), *self.look()]

    def look(self) -> list[Lost | Told]:
        return self.replica.look(Calibration(), self.trials)

    def later(self, seconds: float = 60.0) -> list[Lost | Told]:
        self.clock[0] += seconds
        return self.look()

    def restarts(self) -> list[bool]:
        return [not no_restart for _, no_restart in self.ray.killed]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    double, actors, clock = RayDouble(), [], [100.0]

    def new_actor(_: object) -> Actor:
        actors.append(Actor())
        return actors[-1]

    monkeypatch.setattr(module, "ray", double)
    monkeypatch.setattr("datagen.driver.replica.time.monotonic", lambda: clock[0])
    return Rig(Replica(4, cast(Any, None), new_actor, 1000.0), double, actors, clock)


def blame(came: list[Any]) -> dict[str, bool]:
    return {one.unit.number: one.running for one in came if isinstance(one, Lost)}


def test_where_a_good_sample_is_made_the_unit_that_raised_is_to_blame(rig: Rig) -> None:
    (make,) = rig.hand("bad")
    make.raises(ZeroDivisionError("no one foresaw this"))
    assert rig.came() == []
    assert [one.unit.number for one in rig.replica.suspects] == ["bad"]
    trial = rig.actor.last("try_out")
    assert trial.arguments[0].prompts == tuple(GOOD)
    trial.returns()
    (lost,) = rig.look()
    assert isinstance(lost, Lost)
    assert (lost.running, lost.died, lost.worker) == (True, False, 4)
    assert "ZeroDivisionError: no one foresaw this" in lost.detail
    assert (rig.replica.stage, rig.ray.killed) == ("well", [])


def test_where_it_is_not_no_unit_is_blamed_and_the_worker_is_started_anew(rig: Rig) -> None:
    first, second = rig.hand("first", "second")
    first.raises(BROKEN)
    assert rig.came() == []
    second.raises(BROKEN)
    assert rig.came() == []
    rig.actor.last("try_out").raises(BROKEN)
    came = rig.look()
    assert blame(came) == {"first": False, "second": False}
    assert "it makes nothing: a worker failed" in next(one.text for one in came if isinstance(one, Told))
    assert rig.restarts() == [True]
    rig.look()
    rig.actor.last("come_back").returns()
    rig.look()
    rig.actor.last("try_out").returns()
    assert rig.look() == []
    assert rig.replica.stage == "well"


def test_what_was_queued_behind_and_is_made_counts(rig: Rig) -> None:
    bad, good = rig.hand("bad", "good")
    bad.raises(BROKEN)
    rig.came()
    good.returns(WITHOUT_PART)
    (made,) = rig.came()
    assert isinstance(made, Made)
    rig.actor.last("try_out").returns()
    assert blame(rig.look()) == {"bad": True}


def test_a_worker_that_makes_nothing_in_new_processes_is_given_up_and_blames_nobody(rig: Rig) -> None:
    (make,) = rig.hand("innocent")
    make.raises(BROKEN)
    came = rig.came()
    for _ in range(FAILED_TRIALS - 1):
        rig.actor.last("try_out").raises(BROKEN)
        came += rig.look()
        rig.look()
        rig.actor.last("come_back").returns()
        rig.look()
    rig.actor.last("try_out").raises(BROKEN)
    with pytest.raises(BeyondRepairError) as caught:
        rig.look()
    assert isinstance(caught.value.error, RunFailedError)
    assert "CUDA error" in str(caught.value.error)
    assert rig.restarts() == [True] * (FAILED_TRIALS - 1)
    assert blame([*came, *rig.replica.given_up()]) == {"innocent": False}


def test_a_server_that_is_away_is_waited_for_and_blames_nobody(rig: Rig) -> None:
    (make,) = rig.hand("innocent")
    make.raises(AWAY)
    rig.came()
    rig.actor.last("try_out").raises(AWAY)
    came = rig.look()
    assert blame(came) == {"innocent": False}
    assert "its server is away" in next(one.text for one in came if isinstance(one, Told))
    rig.look()
    for turn in range(3 * FAILED_LOADS):
        asked = len(rig.actor.calls)
        rig.actor.last("come_back").raises(AWAY)
        assert len(rig.look()) == (turn == 0)
        assert rig.look() == []
        assert len(rig.actor.calls) == asked  # not before its pause is over
        rig.later()
    rig.actor.last("come_back").returns()
    rig.look()
    rig.actor.last("try_out").returns()
    assert rig.look() == []
    assert (rig.replica.stage, rig.restarts()) == ("well", [True])


def test_a_server_that_stays_away_ends_the_wait_and_blames_nobody(rig: Rig) -> None:
    (make,) = rig.hand("innocent")
    make.raises(AWAY)
    rig.came()
    rig.clock[0] += 1001.0
    rig.actor.last("try_out").raises(AWAY)
    with pytest.raises(BeyondRepairError) as caught:
        rig.look()
    assert isinstance(caught.value.error, FleetError)
    assert "expected an answer, got 500" in str(caught.value.error)
    assert blame(list(rig.replica.given_up())) == {"innocent": False}


def test_a_death_blames_the_unit_that_was_alone_and_the_worker_is_tried_when_it_is_back(rig: Rig) -> None:
    (alone,) = rig.hand("alone")
    alone.dies()
    assert blame(rig.came()) == {"alone": True}
    rig.actor.last("come_back").dies()
    rig.look()  # Ray is not done yet
    rig.later()
    rig.actor.last("come_back").returns()
    rig.look()
    rig.actor.last("try_out").returns()
    assert rig.look() == []
    assert rig.replica.stage == "well"


@pytest.mark.parametrize("told_first", ["first", "second", "both"])
def test_of_several_none_is_blamed_however_late_their_loss_is_told(told_first: str, rig: Rig) -> None:
    """Ray loses the answer of a unit that was made as the next one kills its worker, or tells it late."""
    calls = dict(zip(("first", "second"), rig.hand("first", "second"), strict=True))
    for name, call in calls.items():
        if told_first in (name, "both"):
            call.dies()
    found = blame(rig.came())
    rig.actor.last("come_back").returns()
    rig.look()
    rig.actor.last("try_out").returns()
    rig.look()
    for call in calls.values():
        call.dies()
    assert found | blame(rig.came()) == {"first": False, "second": False}
    assert rig.replica.stage == "well"
    (alone,) = rig.hand("second")
    alone.dies()
    assert blame(rig.came()) == {"second": True}


def test_beside_a_unit_that_is_to_be_alone_it_has_no_room(rig: Rig) -> None:
    assert rig.replica.has_room(2)
    rig.replica.hand(Unit("doubtful", tuple(random_prompts([5]))), alone=True)
    assert not rig.replica.has_room(2)
    rig.actor.last("make").returns(WITHOUT_PART)
    rig.came()
    rig.hand("another")
    assert rig.replica.has_room(2)
    assert not rig.replica.has_room(1)


def test_a_unit_that_kills_it_before_it_is_tried_clears_the_one_before(rig: Rig) -> None:
    raised, deadly = rig.hand("raised", "deadly")
    raised.raises(BROKEN)
    rig.came()
    rig.actor.last("try_out").dies()  # told before the unit that it stood behind
    found = blame(rig.came())
    assert (found, rig.replica.stage) == ({"raised": False}, "loading")
    deadly.dies()
    assert found | blame(rig.came()) == {"raised": False, "deadly": False}


def test_one_that_does_not_load_again_is_given_up(rig: Rig) -> None:
    (make,) = rig.hand("deadly")
    make.dies()
    rig.came()
    for turn in range(FAILED_LOADS - 1):
        rig.actor.last("come_back").raises(OSError("no such file"))
        assert len(rig.look()) == (turn == 0)
        rig.later()
    rig.actor.last("come_back").raises(OSError("no such file"))
    with pytest.raises(BeyondRepairError, match="does not load: a worker failed"):
        rig.look()


def test_one_that_never_answers_again_is_given_up(rig: Rig) -> None:
    (make,) = rig.hand("deadly")
    make.dies()
    rig.came()
    assert rig.later(999.0) == []
    with pytest.raises(BeyondRepairError, match="got none yet"):
        rig.later(2.0)


def test_one_that_only_makes_the_good_sample_is_started_anew_once(rig: Rig) -> None:
    """An engine whose memory leaks may make a short sample, and no unit."""
    numbers = [str(number) for number in range(2 * LASTING)]
    for number in numbers:
        (make,) = rig.hand(number)
        make.raises(BROKEN)
        rig.came()
        rig.actor.last("try_out").returns()
        assert blame(rig.look()) == {number: True}
        if number == numbers[LASTING - 1]:
            rig.look()
            rig.actor.last("come_back").returns()
            rig.look()
            rig.actor.last("try_out").returns()
            rig.look()
        assert rig.replica.stage == "well"
    assert rig.restarts() == [True]


def test_without_a_sample_that_is_known_to_be_good_several_are_tried(rig: Rig) -> None:
    some = random_prompts([4, 2, 9, 7])
    rig.trials = Trials((), some)
    tried = []
    for _ in range(3):
        unit = rig.trials.unit()
        assert unit is not None
        tried.append(len(unit.prompts[0].input_ids))
        rig.trials.failed()
    assert tried == [2, 4, 7]
    rig.trials = Trials()
    (make,) = rig.hand("bad")
    make.raises(BROKEN)
    assert blame(rig.came()) == {"bad": True}  # nothing to try with


def test_what_stops_the_run_is_told_at_once(rig: Rig) -> None:
    for error in (StoreError("the disk is full"), RunFailedError("the engine lost count")):
        (make,) = rig.hand("unit")
        make.raises(error)
        (lost,) = rig.came()
        assert isinstance(lost, Lost)
        assert lost.error is error


def test_another_one_in_its_place_is_not_taken(monkeypatch: pytest.MonkeyPatch, rig: Rig) -> None:
    def refuse(facts: object) -> None:
        raise FleetError(f"{facts} came back")

    check: Callable[[Any], None] = refuse
    monkeypatch.setattr(rig.replica, "_check", check)
    (make,) = rig.hand("deadly")
    make.dies()
    rig.came()
    rig.actor.last("come_back").returns("another")
    with pytest.raises(FleetError, match="another came back"):
        rig.look()
