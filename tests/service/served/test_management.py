"""Management: each change is a version and says what it did; a refusal changes nothing, nor does a repeat."""

from collections.abc import Callable
from pathlib import Path

import pytest

from datagen.store.dataset import Dataset
from datagen.store.errors import ConflictError, NotFoundError, RefusedError, StoreError
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from schemas.errors import StrataError
from schemas.split import split_of
from service.errors import MalformedError
from service.served import management
from service.served.changes import (
    CondemnChange,
    DropChange,
    NameChange,
    RollbackChange,
    SplitChange,
    SplitShare,
    SweepChange,
)
from tests.builders import random_sample, tiny_schema
from tests.datagen.store.real_parts import commit_samples, samples_of
from tests.service.folders import content_of

SCHEMA = tiny_schema(("final",))
HOLDOUT = SplitChange(
    shares=(SplitShare(split="train", share=0.6), SplitShare(split="validation", share=0.3))
)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Two versions: twelve samples of four conversations, then three more of a fifth."""
    made = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    commit_samples(made, SCHEMA, [random_sample(SCHEMA, 1 + n, n, f"talk-{n // 3}") for n in range(12)])
    commit_samples(made, SCHEMA, [random_sample(SCHEMA, 1 + n, n, "talk-4") for n in range(12, 15)])
    return made


def test_a_split_says_what_falls_where(dataset: Dataset) -> None:
    found = management.split(dataset, HOLDOUT)
    assert (found.version, found.operation, found.changed, found.dry_run) == (3, "split", True, False)
    assert dataset.version(3).splits == (found.rule,)
    assert [share.split for share in found.shares] == ["train", "validation", None]
    index = dataset.snapshot().index
    for share in found.shares:
        inside = [one for one in index if split_of(found.rule, one.conversation_id) == share.split]
        assert share.n_samples == len(inside)
        assert share.n_tokens == sum(one.n_tokens for one in inside)
        assert share.n_conversations == len({one.conversation_id for one in inside})
    assert sum(share.n_conversations for share in found.shares) == 5


def test_a_rule_replaces_the_one_of_its_name(dataset: Dataset) -> None:
    management.split(dataset, HOLDOUT)
    other = SplitChange(rule="probe", seed=4, shares=(SplitShare(split="probe", share=0.5),))
    management.split(dataset, other)
    assert [rule.name for rule in dataset.snapshot().version.splits] == ["default", "probe"]
    again = management.split(dataset, HOLDOUT.model_copy(update={"seed": 7}))
    assert [(rule.name, rule.seed) for rule in dataset.snapshot().version.splits] == [
        ("default", 7),
        ("probe", 4),
    ]
    assert again.changed
    management.split(dataset, other.model_copy(update={"only": True}))
    assert [rule.name for rule in dataset.snapshot().version.splits] == ["probe"]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(lambda held: DropChange(sample_ids=tuple(held[:2])), id="ids"),
        pytest.param(lambda held: DropChange(conversation_ids=("talk-4",)), id="conversation"),
        pytest.param(lambda held: DropChange(shorter_than=4), id="shorter"),
    ],
)
def test_a_drop_says_what_went_and_is_made_once(
    dataset: Dataset, asked: Callable[[list[str]], DropChange]
) -> None:
    change = asked(list(dataset.snapshot().sample_ids))
    trial = management.drop(dataset, change.model_copy(update={"dry_run": True}))
    assert (trial.changed, trial.dry_run, trial.version) == (True, True, 2)
    assert dataset.log.newest() == 2
    found = management.drop(dataset, change)
    assert (found.version, found.operation, found.changed) == (3, "drop", True)
    assert (found.n_dropped, found.n_dropped_tokens) == (trial.n_dropped, trial.n_dropped_tokens)
    before, after = dataset.version(2), dataset.version(3)
    assert found.n_dropped == before.n_samples - after.n_samples > 0
    assert found.n_dropped_tokens == before.n_tokens - after.n_tokens
    again = management.drop(dataset, change)
    assert (again.version, again.changed, again.n_dropped) == (3, False, 0)
    assert verify(dataset).problems == []


def test_what_is_gone_already_is_counted_and_what_never_was_is_refused(
    dataset: Dataset, tmp_path: Path
) -> None:
    first, second, third, *_ = dataset.snapshot().sample_ids
    management.drop(dataset, DropChange(sample_ids=(first,)))
    management.rollback(dataset, RollbackChange(version="1"))
    management.drop(dataset, DropChange(conversation_ids=("talk-0",)))
    held = set(dataset.snapshot().sample_ids)
    gone = [one for one in (first, second, third) if one not in held]
    rest = next(iter(held))
    before = content_of(tmp_path)
    unknown = ("0" * 64, "f" * 64)
    with pytest.raises(NotFoundError) as caught:
        management.drop(dataset, DropChange(sample_ids=(rest, *gone, *unknown)))
    assert [problem.where for problem in caught.value.problems] == list(unknown)
    with pytest.raises(NotFoundError) as caught:
        management.drop(dataset, DropChange(conversation_ids=("talk-0", "talk-4", "talk-9")))
    assert [problem.where for problem in caught.value.problems] == ["talk-9"]
    assert content_of(tmp_path) == before
    found = management.drop(dataset, DropChange(sample_ids=(rest, *gone)))
    assert (found.n_dropped, found.n_gone_before) == (1, len(gone))


def test_what_a_rollback_left_out_is_gone_already(dataset: Dataset) -> None:
    management.rollback(dataset, RollbackChange(version="1"))
    found = management.drop(dataset, DropChange(conversation_ids=("talk-4",)))
    assert (found.changed, found.n_gone_before) == (False, 1)


def test_many_unknown_ids_are_told_in_few_lines(dataset: Dataset) -> None:
    many = tuple(f"{number:064x}" for number in range(1000))
    with pytest.raises(NotFoundError) as caught:
        management.drop(dataset, DropChange(sample_ids=many))
    assert len(caught.value.problems) == management.MAX_TOLD + 1
    assert "got 900 more" in caught.value.problems[-1].message


def test_roll_back_by_number_or_name(dataset: Dataset) -> None:
    assert management.name(dataset, NameChange(name="v1", version="1")).changed
    management.split(dataset, HOLDOUT)
    found = management.rollback(dataset, RollbackChange(version="v1"))
    assert (found.version, found.to_version, found.changed, found.n_samples) == (4, 1, True, 12)
    assert dataset.snapshot().version.splits == ()
    again = management.rollback(dataset, RollbackChange(version="1", expected_version=2))
    assert (again.version, again.changed) == (4, False)


def test_names_are_listed_with_their_versions(dataset: Dataset) -> None:
    assert management.name(dataset, NameChange(name="now")).version == 2
    assert not management.name(dataset, NameChange(name="now", version="2")).changed
    management.name(dataset, NameChange(name="also-now", version="latest"))
    assert [(one.name, one.version) for one in management.names(dataset).names] == [
        ("also-now", 2),
        ("now", 2),
    ]
    newest, oldest = management.versions(dataset)
    assert (newest.number, newest.names, oldest.names) == (2, ("also-now", "now"), ())
    assert [facts.number for facts in management.versions(dataset, 1)] == [2]


def test_gc_says_what_goes_in_bytes_and_a_name_keeps_its_parts(dataset: Dataset) -> None:
    management.rollback(dataset, RollbackChange(version="1"))
    keep_one = CondemnChange(keep_versions=1, grace_seconds=0)
    trial = management.gc_condemn(dataset, keep_one.model_copy(update={"dry_run": True}))
    assert (trial.changed, len(trial.parts), trial.version) == (True, 1, 3)
    management.name(dataset, NameChange(name="v2", version="2"))
    assert not management.gc_condemn(dataset, keep_one).changed
    done = management.gc_condemn(dataset, keep_one.model_copy(update={"keep_named": False}))
    assert (done.version, done.parts, done.size_bytes) == (4, trial.parts, trial.size_bytes)
    assert not management.gc_condemn(dataset, keep_one).changed
    kept = management.gc_sweep(dataset, SweepChange(grace_seconds=0))
    assert (kept.changed, [problem.kind for problem in kept.left]) == (False, ["named"])
    sweep = SweepChange(grace_seconds=0, keep_named=False)
    swept = management.gc_sweep(dataset, sweep)
    assert (swept.changed, swept.size_bytes, swept.version) == (True, trial.size_bytes, 4)
    assert not management.gc_sweep(dataset, sweep).changed
    assert [facts.n_condemned_parts for facts in management.versions(dataset)] == [0, 0, 1, 0]


REFUSED = [
    pytest.param(
        lambda d: management.split(d, HOLDOUT.model_copy(update={"expected_version": 1})),
        ConflictError,
        id="stale-split",
    ),
    pytest.param(
        lambda d: management.drop(d, DropChange(shorter_than=5, expected_version=1)),
        ConflictError,
        id="stale-drop",
    ),
    pytest.param(
        lambda d: management.rollback(d, RollbackChange(version="1", expected_version=9)),
        ConflictError,
        id="stale-rollback",
    ),
    pytest.param(
        lambda d: management.drop(d, DropChange(shorter_than=5, expected_version=1, dry_run=True)),
        ConflictError,
        id="stale-trial",
    ),
    pytest.param(
        lambda d: management.split(d, SplitChange(shares=(SplitShare(split="a", share=1.5),))),
        MalformedError,
        id="share",
    ),
    pytest.param(lambda d: management.split(d, SplitChange(shares=())), MalformedError, id="no-share"),
    pytest.param(
        lambda d: management.rollback(d, RollbackChange(version="9")), NotFoundError, id="no-version"
    ),
    pytest.param(lambda d: management.rollback(d, RollbackChange(version="v9")), NotFoundError, id="no-name"),
    pytest.param(lambda d: management.name(d, NameChange(name="latest")), MalformedError, id="latest"),
    pytest.param(lambda d: management.name(d, NameChange(name="../x")), MalformedError, id="name-above"),
]


@pytest.mark.parametrize(("change", "error"), REFUSED)
def test_a_refused_change_changes_nothing(
    dataset: Dataset, tmp_path: Path, change: Callable[[Dataset], object], error: type[StrataError]
) -> None:
    before = content_of(tmp_path)
    with pytest.raises(error) as caught:
        change(dataset)
    assert caught.value.problems
    assert content_of(tmp_path) == before


def test_rules_that_clash_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    management.split(dataset, HOLDOUT)
    before = content_of(tmp_path)
    with pytest.raises(RefusedError, match=r"splits\.other\.train: expected a name of its own"):
        management.split(dataset, HOLDOUT.model_copy(update={"rule": "other"}))
    assert content_of(tmp_path) == before


def test_a_dataset_without_versions_is_told(tmp_path: Path) -> None:
    empty = Dataset.create(LocalDoor(tmp_path), "empty", SCHEMA, exist_ok=False)
    changes: list[Callable[[], object]] = [
        lambda: management.split(empty, HOLDOUT),
        lambda: management.drop(empty, DropChange(shorter_than=2)),
        lambda: management.rollback(empty, RollbackChange(version="1")),
        lambda: management.name(empty, NameChange(name="v")),
        lambda: management.gc_condemn(empty, CondemnChange(keep_versions=1)),
        lambda: management.gc_sweep(empty, SweepChange()),
    ]
    for change in changes:
        with pytest.raises(StoreError):
            change()
    assert list(management.versions(empty)) == []
    assert management.names(empty).names == ()


def test_a_version_that_lost_everything_can_be_managed(dataset: Dataset) -> None:
    everything = DropChange(shorter_than=1000)
    assert management.drop(dataset, everything).n_samples == 0
    assert not management.drop(dataset, everything).changed
    assert [share.n_samples for share in management.split(dataset, HOLDOUT).shares] == [0, 0, 0]
    commit_samples(dataset, SCHEMA, samples_of(SCHEMA, [3], seed=90))
    assert verify(dataset).ok
