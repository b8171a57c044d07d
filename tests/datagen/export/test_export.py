"""An export: refused by name where the wiring does not hold, whole in what it says, told."""

import json
import shlex
from datetime import timedelta
from pathlib import Path

import pytest

from datagen.commands.export import command
from datagen.errors import ConfigError, ExportError
from datagen.export.exporting import Asked, plan_export, rows_of, run_export
from datagen.export.folder import IDENTITY
from datagen.export.listed_files import SUMS, sha256_of
from datagen.store.errors import CorruptError, NotFoundError, RefusedError
from datagen.store.gc import condemn, sweep
from datagen.wiring.cards import read_card
from schemas.command import UsageError, guarded
from schemas.errors import StrataError
from schemas.records import SplitRule
from tests.datagen.adapters.exports.builders import LENGTHS, make_dataset, open_dataset
from tests.datagen.export.asking import asked, listed


def refusal(given: Asked) -> dict[str, str]:
    with pytest.raises(ExportError) as error:
        plan_export(given)
    assert error.value.exit_code == 1
    assert not given.out.exists()
    return {problem.where: f"{problem.message} ({problem.repair})" for problem in error.value.problems}


def test_the_list_names_every_file_and_its_digest(dataset: str, tmp_path: Path) -> None:
    written = run_export(plan_export(asked(dataset, tmp_path)), workers=2)
    there = {str(path.relative_to(written.path)) for path in written.path.rglob("*") if path.is_file()}
    assert listed(written.path).keys() == there - {SUMS}
    assert all(sha256_of(written.path / path) == digest for path, digest in listed(written.path).items())
    assert (written.n_files, written.n_kept, written.was_there) == (len(there), 0, False)
    assert not (tmp_path / ".out.partial").exists()


def test_the_card_says_which_tensors_of_which_version(dataset: str, tmp_path: Path) -> None:
    run_export(plan_export(asked(dataset, tmp_path, fc=("embed", "layer4"))), workers=1)
    card = read_card(tmp_path / "out")
    assert card.wiring.fc == ("embed", "layer4")
    assert card.wiring.target is not None
    assert (card.wiring.target.tensor, card.wiring.target.applies_norm) == ("final", True)
    assert card.dataset is not None
    assert (card.dataset.name, card.dataset.version) == ("states", 1)


def test_without_final_it_says_what_to_capture(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, names=("embed", "layer2", "layer4", "layer5"))
    problems = refusal(asked(dataset, tmp_path))
    assert problems.keys() == {"target"}
    assert "expected final for speculators==0.9.0" in problems["target"]
    assert "add final to tensors.names and make a dataset with it" in problems["target"]


def test_a_middle_layer_as_the_target_is_refused_as_check_does(dataset: str, tmp_path: Path) -> None:
    problems = refusal(asked(dataset, tmp_path, fc=("embed", "layer2", "layer4"), target="layer5"))
    assert "layer 5 of 8, not the last one" in problems["target"]
    assert "feed final, which the dataset has" in problems["target"]


@pytest.mark.parametrize(
    ("fc", "told"),
    [
        (("layer4", "layer2", "layer5"), "the same tensors in another order"),
        (("layer2", "layer2", "layer5"), "expected each id once"),
        (("layer2", "layer3", "layer5"), "expected layer3 for speculators"),
        (("layer2", "final"), "final cannot be captured by speculators"),
    ],
    ids=["order", "twice", "not there", "the target's slot"],
)
def test_an_input_that_the_trainer_cannot_take_is_refused(
    dataset: str, tmp_path: Path, fc: tuple[str, ...], told: str
) -> None:
    assert told in " ".join(refusal(asked(dataset, tmp_path, fc=fc)).values())


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"fc": ("layer9",)}, ConfigError),
        ({"target": "last"}, ConfigError),
        ({"splits": ("train",)}, NotFoundError),
    ],
    ids=["beyond", "no name", "no split"],
)
def test_what_there_is_not_is_named(
    dataset: str, tmp_path: Path, given: dict[str, object], error: type[StrataError]
) -> None:
    with pytest.raises(error):
        plan_export(asked(dataset, tmp_path, **given))


def test_an_unknown_format_lists_those_there_are(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected one of speculators, .*got 'csv'"):
        plan_export(Asked(dataset, "csv", tmp_path / "out"))


def test_conversations_stay_together_and_the_cut_falls_between_two(dataset: str) -> None:
    snapshot = open_dataset(dataset).snapshot()
    rows, n_train = rows_of(snapshot, ())
    order = [row.location.conversation_id for row in rows]
    assert [row.number for row in rows] == list(range(len(LENGTHS)))
    assert order == [name for name in dict.fromkeys(order) for _ in range(2)]
    assert n_train == 8
    assert not set(order[:n_train]) & set(order[n_train:])


def test_named_splits_follow_one_another_the_first_for_training(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    opened = open_dataset(dataset)
    rule = SplitRule(name="holdout", seed=3, fractions=(("train", 0.5), ("validation", 0.5)))
    opened.split([rule])
    snapshot = opened.snapshot()
    rows, n_train = rows_of(snapshot, ("validation", "train"))
    alone, _ = rows_of(snapshot, ("validation",))
    assert 0 < n_train == len(alone) < len(rows) == len(LENGTHS)
    assert [row.location for row in rows[:n_train]] == [row.location for row in alone]
    plan = plan_export(asked(dataset, tmp_path, splits=("validation", "train")))
    ratio = float(plan.next_step.partition("--train-data-ratio ")[2].split()[0])
    assert int(len(rows) * ratio) == n_train


def test_stored_bytes_that_changed_end_it(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    plan = plan_export(asked(dataset, tmp_path))
    for shard in tmp_path.glob("states/parts/*/data.zarr/layer4/c/0/0"):
        data = bytearray(shard.read_bytes())
        data[3] ^= 1
        shard.write_bytes(data)
    with pytest.raises(CorruptError, match="layer4"):
        run_export(plan, workers=2)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_tells_the_size_and_writes_nothing(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dataset", dataset, "--format", "speculators", "--out", str(tmp_path / "out"), "--json"]
    assert command([*words, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["written"] is None
    assert not (tmp_path / "out").exists()
    assert command(words) == 0
    written = json.loads(capsys.readouterr().out)
    states = sum(path.stat().st_size for path in (tmp_path / "out" / "hidden_states").iterdir())
    assert written["written"]["bytes"] >= states
    assert planned["planned_states_bytes"] == states
    assert states < written["written"]["bytes"] <= planned["planned_bytes"] < states + 2**17
    assert (planned["rows"], planned["train_rows"]) == (len(LENGTHS), 8)


@pytest.mark.parametrize("words", [("--fc", "layer2,,layer4"), ("--split", "train,")])
def test_a_name_that_is_missing_between_two_commas_is_told(words: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected names with a comma between two of them"):
        command(["--dataset", "d/s", "--format", "speculators", "--out", str(tmp_path / "out"), *words])


def test_a_person_is_told_how_to_train(
    dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dataset", dataset, "--format", "speculators", "--out", str(tmp_path / "out")]
    assert command(words) == 0
    told = capsys.readouterr().out
    assert "input layer2, layer4, layer5; target final" in told
    assert "8 for training, then 2 held out" in told
    assert "--target-layer-ids 2 4 5" in told
    assert (tmp_path / "out" / IDENTITY).is_file()


def test_splits_that_share_samples_are_refused(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    rules = [
        SplitRule(name="holdout", seed=3, fractions=(("train", 0.5), ("validation", 0.5))),
        SplitRule(name="whole", seed=3, fractions=(("all", 1.0),)),
    ]
    open_dataset(dataset).split(rules)
    for splits in (("train", "train"), ("train", "all")):
        with pytest.raises(RefusedError, match="expected splits that share no conversation"):
            plan_export(asked(dataset, tmp_path, splits=splits))


@pytest.mark.parametrize(
    ("file_format", "flag"),
    [
        ("speculators", "--data-path "),
        ("speculators-v1", "--data-path "),
        ("modelopt", "data.offline_data_path="),
        ("eagle", "--tmpdir "),
    ],
)
def test_the_command_that_trains_can_be_pasted_into_a_shell(
    tmp_path: Path, file_format: str, flag: str
) -> None:
    dataset = make_dataset(tmp_path, names=("layer2", "layer4", "layer5", "final_normed", "final"))
    out = tmp_path / "it's mine & new"
    size = None if file_format == "eagle" else 50
    fc = None if file_format == "eagle" else ("layer2", "layer4", "layer5")
    plan = plan_export(Asked(dataset, file_format, out, fc=fc, draft_vocab_size=size))
    assert flag in plan.next_step
    words = shlex.split(plan.next_step.replace("ModelOpt's", "ModelOpt"))
    assert len([word for word in words if str(out) in word]) == plan.next_step.count("mine & new")


def test_a_version_that_gc_has_swept_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = make_dataset(tmp_path)
    opened = open_dataset(dataset)
    samples = list(opened.snapshot().index)
    part = samples[-1].part_id
    opened.drop(sample.sample_id for sample in samples if sample.part_id == part)
    condemn(opened, keep_versions=1, grace=timedelta(0))
    words = ["--format", "speculators", "--out", str(tmp_path / "out"), "--dry-run", "--dataset"]
    assert guarded(command, [*words, f"{dataset}@1"]) == 0
    sweep(opened, grace=timedelta(0))
    assert guarded(command, [*words, f"{dataset}@1"]) == 2
    assert "these samples are gone" in capsys.readouterr().err
    assert guarded(command, [*words, dataset]) == 0


@pytest.mark.parametrize("file_format", ["modelopt", "deepspec"])
def test_a_plan_says_the_states_to_the_byte_and_the_rest_at_most(tmp_path: Path, file_format: str) -> None:
    """Long names are reckoned with, too."""
    names = ("layer2", "layer4", "layer5", "final_normed", "final")
    dataset = make_dataset(tmp_path, names, (2,) * 60, conversation="c" * 300)
    size = None if file_format == "deepspec" else 900
    asked_for = Asked(dataset, file_format, tmp_path / "out", fc=names[:3], draft_vocab_size=size)
    plan = plan_export(asked_for)
    written = run_export(plan, workers=2)
    states = sum((written.path / file.path).stat().st_size for file in plan.files)
    assert plan.states_bytes == states
    assert states < written.size_bytes <= plan.size_bytes
