"""Which unit goes next, with workers that die."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datagen.driver.schedule import FAILURES_IN_A_ROW, Schedule
from datagen.errors import RunFailedError
from datagen.planning.units import Unit
from tests.datagen.prompt_builders import random_prompts


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    poison=st.sets(st.integers(0, 200), max_size=3),
    attempts=st.integers(1, 3),
)
def test_exactly_the_poison_samples_are_given_up(sizes: list[int], poison: set[int], attempts: int) -> None:
    prompts = random_prompts([5] * sum(sizes))
    deadly = {prompts[at].sample_id for at in poison if at < len(prompts)}
    units, start = [], 0
    for number, size in enumerate(sizes):
        units.append(Unit(str(number), tuple(prompts[start : start + size])))
        start += size
    schedule = Schedule(units, attempts)
    made: list[str] = []
    given_up: list[str] = []
    while unit := schedule.next():
        if any(prompt.sample_id in deadly for prompt in unit.prompts):
            schedule_poison = schedule.failed(unit, "worker died")
            if schedule_poison is not None:
                given_up.append(schedule_poison.prompt.sample_id)
                schedule.finished()  # another worker's unit ends meanwhile: the fleet is not at fault
        else:
            schedule.finished()
            made += [prompt.sample_id for prompt in unit.prompts]
    assert sorted(given_up) == sorted(deadly)
    assert sorted(made) == sorted(prompt.sample_id for prompt in prompts if prompt.sample_id not in deadly)


def test_a_unit_that_only_waited_comes_back_unharmed() -> None:
    unit = Unit("0", tuple(random_prompts([5, 5])))
    schedule = Schedule([unit], 1)
    taken = schedule.next()
    assert taken is not None
    schedule.returned(taken)
    assert schedule.next() == unit
    assert schedule.next() is None


def test_nothing_but_failures_stops_the_run_and_says_which() -> None:
    units = [Unit(str(n), tuple(random_prompts([5], seed=n))) for n in range(2 * FAILURES_IN_A_ROW)]
    schedule = Schedule(units, 1)
    with pytest.raises(RunFailedError, match="failures in a row") as caught:
        _fail_all(schedule)
    assert caught.value.exit_code == 1
    assert {problem.message for problem in caught.value.problems} == {"cannot allocate memory"}


def _fail_all(schedule: Schedule) -> None:
    while unit := schedule.next():
        schedule.failed(unit, "cannot allocate memory")
