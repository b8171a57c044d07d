"""What is selected is what the rules say, and its order is that of the published function."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from datagen.store.snapshot import Snapshot
from schemas.records import SplitRule
from schemas.split import split_of
from service.asked.selection import Selection, in_epoch, select, splits_of
from service.errors import MalformedError
from service.wire.order import epoch_order
from tests.service.serving import make_dataset

RULES = (
    SplitRule(name="holdout", seed=0, fractions=(("train", 0.6), ("validation", 0.3))),
    SplitRule(name="tiny", seed=1, fractions=(("debug", 0.5),)),
)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    root = tmp_path_factory.mktemp("root")
    for part in range(2):
        make_dataset(root, lengths=range(1, 31), seed=100 * part)
    dataset = Dataset.open(open_door(root), "demo")
    dataset.split(RULES)
    return dataset.snapshot()


@given(st.sampled_from([None, "train", "validation", "debug"]), st.integers(0, 35), st.integers(0, 20))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_selection_is_what_the_rules_say(
    snapshot: Snapshot, split: str | None, min_tokens: int, min_trained: int
) -> None:
    rules = {name: rule for rule in RULES for name, _ in rule.fractions}
    expected = [
        position
        for position, location in enumerate(snapshot.index)
        if (split is None or split_of(rules[split], location.conversation_id) == split)
        and location.n_tokens >= min_tokens
        and location.n_trained >= min_trained
    ]
    got = select(snapshot, split, min_tokens, min_trained)
    assert got.tolist() == expected
    assert not got.flags.writeable
    order = in_epoch(snapshot, Selection(split, min_tokens, min_trained), 7, 2)
    ids = snapshot.index.sample_ids.as_bytes()[expected]
    assert order.tolist() == [expected[at] for at in epoch_order(ids, 7, 2)]


def test_the_splits_part_the_samples_and_leave_some_out(snapshot: Snapshot) -> None:
    train, held = set(select(snapshot, "train").tolist()), set(select(snapshot, "validation").tolist())
    assert train
    assert held
    assert not train & held
    assert len(train | held) < len(snapshot)
    told = splits_of(snapshot, snapshot.index.at(min(train)).conversation_id)
    assert told[0] == "train"


def test_an_unknown_split_lists_those_there_are(snapshot: Snapshot, tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match="expected one of train, validation, debug, got 'test'"):
        select(snapshot, "test")
    make_dataset(tmp_path)
    without = Dataset.open(open_door(tmp_path), "demo").snapshot()
    with pytest.raises(MalformedError, match="this version has no splits"):
        select(without, "train")


def test_a_commit_leaves_what_was_selected_of_a_version(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    dataset = Dataset.open(open_door(tmp_path), "demo")
    first = dataset.snapshot()
    before = select(first).tolist()
    make_dataset(tmp_path, seed=50)
    assert select(first).tolist() == before
    assert len(select(dataset.snapshot())) == 2 * len(before)
