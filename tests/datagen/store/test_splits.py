"""Splits over an index: what `schemas.split` says of each sample's conversation, at any size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.index import Index, Location
from datagen.store.local import LocalDoor
from datagen.store.splits import IN_NONE, Share, assign, rule_of
from schemas.records import SplitRule
from schemas.split import split_of
from tests.builders import random_sample, tiny_schema
from tests.datagen.store.real_parts import commit_samples

SCHEMA = tiny_schema(("final",))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Return an index of two files, of conversations that have one to three pieces."""
    dataset = Dataset.create(LocalDoor(tmp_path_factory.mktemp("root")), "demo", SCHEMA, exist_ok=False)
    for part in range(2):
        numbers = range(40 * part, 40 * (part + 1))
        samples = [random_sample(SCHEMA, 1 + n % 5, n, f"talk-{n // 3}") for n in numbers]
        commit_samples(dataset, SCHEMA, samples)
    return dataset.snapshot().index


@pytest.fixture(scope="module")
def locations(index: Index) -> list[Location]:
    return list(index)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(-3, 3),
    shares=st.sampled_from(
        [(0.5, 0.5), (0.9, 0.1), (0.2, 0.3), (1.0,), (0.1, 0.2, 0.7), (1e-30,), (1e-9, 0.5)]
    ),
)
def test_every_sample_is_in_the_split_of_its_conversation(
    index: Index, locations: list[Location], seed: int, shares: tuple[float, ...]
) -> None:
    rule = SplitRule(name="r", seed=seed, fractions=tuple((f"s{i}", share) for i, share in enumerate(shares)))
    found = assign(index, rule)
    names = [*(name for name, _ in rule.fractions), None]
    wanted = [split_of(rule, location.conversation_id) for location in locations]
    assert [names[number] for number in found.splits] == wanted
    for name, share in zip(names, found.shares(index.lengths), strict=True):
        inside = [location for location, split in zip(locations, wanted, strict=True) if split == name]
        talks = {location.conversation_id for location in inside}
        n_tokens = sum(location.n_tokens for location in inside)
        assert share == Share(name, len(inside), n_tokens, len(talks))
        if name is not None:
            assert found.positions(name).tolist() == [i for i, split in enumerate(wanted) if split == name]


def test_a_version_without_samples_has_empty_splits() -> None:
    rule = SplitRule(name="r", seed=0, fractions=(("train", 0.5),))
    found = assign(Index([]), rule)
    assert found.shares(np.zeros(0, np.int32)) == [Share("train", 0, 0, 0), Share(None, 0, 0, 0)]
    assert len(found.positions("train")) == 0
    assert IN_NONE not in found.splits


def test_a_split_that_is_not_there_lists_those_there_are(index: Index) -> None:
    rules = [SplitRule(name=name, seed=0, fractions=((f"{name}1", 0.5), (f"{name}2", 0.5))) for name in "ab"]
    assert rule_of(rules, "b2") is rules[1]
    with pytest.raises(NotFoundError, match="got 'x'; there are: a1, a2, b1, b2"):
        rule_of(rules, "x")
    with pytest.raises(NotFoundError, match="there are: none"):
        rule_of([], "x")
    with pytest.raises(NotFoundError, match="there are: a1, a2"):
        assign(index, rules[0]).positions("b1")
