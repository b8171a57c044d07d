"""Which unit goes next, with workers that die, engines that raise, and workers that make nothing."""

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.driver.schedule import DEATHS_IN_A_ROW, Failure, Schedule
from datagen.errors import RunFailedError
from datagen.planning.units import Unit
from tests.datagen.prompt_builders import random_prompts

ONE = (0,)


def units_of(sizes: list[int]) -> list[Unit]:
    prompts = random_prompts([5] * sum(sizes))
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [
        Unit(str(number), tuple(prompts[start : start + size]))
        for number, (start, size) in enumerate(zip(starts, sizes, strict=True))
    ]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    poison=st.sets(st.integers(0, 200), max_size=3),
    attempts=st.integers(1, 3),
    n_workers=st.integers(1, 4),
    with_bad=st.booleans(),
    dies=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=80)
def test_exactly_the_poison_samples_are_given_up_whatever_a_bad_worker_does(
    sizes: list[int],
    poison: set[int],
    attempts: int,
    n_workers: int,
    with_bad: bool,
    dies: bool,
    seed: int,
) -> None:
    """A bad worker fails every unit at once, and the unit is blamed; the good ones are slow."""
    units = units_of(sizes)
    prompts = [prompt for unit in units for prompt in unit.prompts]
    deadly = {prompts[at].sample_id for at in poison if at < len(prompts)}
    workers = tuple(range(n_workers))
    bad = {0} if with_bad and n_workers > 1 else set()
    chance = random.Random(seed)
    schedule = Schedule(units, attempts)
    made: list[str] = []
    given_up: list[str] = []
    in_hand: dict[int, Unit] = {}
    turns = itertools.count()
    while len(schedule) or in_hand:
        assert next(turns) < 5000, "it goes round"
        for worker in workers:
            if worker not in in_hand and (unit := schedule.next(worker, workers)):
                in_hand[worker] = unit
        worker = chance.choice(sorted(bad & set(in_hand)) or sorted(in_hand))
        unit = in_hand.pop(worker)
        if worker in bad or any(prompt.sample_id in deadly for prompt in unit.prompts):
            poisoned = schedule.failed(
                unit, Failure(worker, "it failed", dies and worker not in bad), workers
            )
            if poisoned is not None:
                given_up.append(poisoned.prompt.sample_id)
                assert re.match(r"failed (once|\d times) on \d worker|killed \d worker", poisoned.detail)
                schedule.finished()  # another's unit ends meanwhile: the fleet is not at fault
        else:
            schedule.finished()
            made += [prompt.sample_id for prompt in unit.prompts]
    assert sorted(given_up) == sorted(deadly)
    assert sorted(made) == sorted(prompt.sample_id for prompt in prompts if prompt.sample_id not in deadly)


def test_a_unit_that_is_not_to_blame_comes_back_unharmed() -> None:
    (unit,) = units_of([2])
    schedule = Schedule([unit], 1)
    taken = schedule.next(0, ONE)
    assert taken is not None
    schedule.returned(taken)
    assert schedule.next(0, ONE) == unit
    assert schedule.next(0, ONE) is None


def test_a_doubtful_unit_and_its_halves_are_for_an_idle_worker() -> None:
    doubtful, other = units_of([2, 1])
    schedule = Schedule([doubtful, other], 1)
    taken = schedule.next(0, ONE)
    assert taken is not None
    schedule.returned(taken, doubtful=True)
    assert schedule.next(0, ONE, idle=False) == other
    assert schedule.next(0, ONE, idle=False) is None
    taken = schedule.next(0, ONE)
    assert taken == doubtful
    schedule.failed(taken, Failure(0, "it died", died=True), ONE)
    assert schedule.next(0, ONE, idle=False) is None
    half = schedule.next(0, ONE)
    assert half is not None
    assert (half.number, schedule.is_doubtful(half)) == ("0a", True)


def test_what_failed_goes_to_another_worker_while_there_is_one() -> None:
    first, second = units_of([1, 1])
    schedule = Schedule([first, second], 1)
    for unit in (first, second):
        assert schedule.next(0, (0, 1)) == unit
        assert schedule.failed(unit, Failure(0, "CUDA error", died=False), (0, 1)) is None
    assert schedule.next(0, (0, 1)) is None
    taken = schedule.next(1, (0, 1))
    assert taken is not None
    assert taken.number == "0"
    # The other is given up: there is no one else to ask.
    taken = schedule.next(0, ONE)
    assert taken is not None
    assert schedule.failed(taken, Failure(0, "CUDA error", died=False), ONE) is not None


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ([(0, True), (1, True), (0, True)], "killed 3 workers: last"),
        ([(0, False), (0, False), (0, False)], "failed 3 times on 1 worker: last error: last"),
        ([(0, True), (1, False), (2, False)], "failed 3 times on 3 workers, and killed 1: last error: last"),
    ],
)
def test_a_sample_given_up_is_said_to_have_killed_only_whom_it_killed(
    failures: list[tuple[int, bool]], told: str
) -> None:
    (unit,) = units_of([1])
    schedule = Schedule([unit], 3)
    workers = sorted({worker for worker, _ in failures})
    for worker, died in failures:
        taken = schedule.next(worker, workers)
        assert taken is not None
        poison = schedule.failed(taken, Failure(worker, "last", died), workers)
    assert poison is not None
    assert poison.detail == told


def test_nothing_but_deaths_stop_the_run_and_say_which() -> None:
    units = [Unit(str(n), tuple(random_prompts([5], seed=n))) for n in range(2 * DEATHS_IN_A_ROW)]
    with pytest.raises(RunFailedError, match="workers died 16 times in a row") as caught:
        _fail_all(Schedule(units, 1), died=True)
    assert caught.value.exit_code == 1
    assert {problem.message for problem in caught.value.problems} == {"cannot allocate memory"}
    _fail_all(Schedule(units, 1), died=False)


def _fail_all(schedule: Schedule, *, died: bool) -> None:
    while unit := schedule.next(0, ONE):
        schedule.failed(unit, Failure(0, "cannot allocate memory", died), ONE)
