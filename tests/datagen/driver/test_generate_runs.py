"""Whole runs in generate mode, with real Ray actors, the synthetic engine and a folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datagen.checks import OnPolicyCounts
from datagen.commands.run import problems_of
from datagen.commands.show import command as show
from datagen.config import RunConfig
from datagen.driver.driver import run
from datagen.engines.opening import open_engine
from datagen.errors import ConfigError, ResumeError
from datagen.planning.plan import predict
from datagen.planning.preparation import prepare
from datagen.prompts.prompt import Prompt
from datagen.store.dataset import Dataset, Snapshot
from datagen.store.local import LocalDoor
from datagen.store.verify import verify
from tests.datagen.driver.deadly_worker import DEADLY_LENGTH, DeadlyWorker
from tests.datagen.run_builders import VOCABULARY, synthetic_config

LENGTHS = [5, 64, 33, 12, 90, 2, 40, 7]
ANSWER = 24

pytestmark = pytest.mark.usefixtures("cluster")


def write_asks(file: Path, lengths: list[int], seed: int = 0) -> None:
    """Write token prompts of these lengths, every second one with a first answer and a second question."""
    rng = np.random.default_rng(seed)
    with file.open("w", encoding="utf-8") as stream:
        for number, length in enumerate(lengths):
            mask = [0] * length + ([1] * 4 + [0] * 6 if number % 2 else [])
            ids = rng.integers(1, VOCABULARY, len(mask)).tolist()
            record = {"id": f"c{number}", "input_ids": ids, "loss_mask": mask}
            stream.write(json.dumps(record) + "\n")


def generating(folder: Path, **changes: Any) -> RunConfig:
    return synthetic_config(
        folder, **{"generate__max_tokens": ANSWER, "generate__temperature": 0.7, **changes}
    )


def snapshot_of(folder: Path) -> Snapshot:
    return Dataset.open(LocalDoor(folder / "data"), "small").snapshot()


def said_in(snapshot: Snapshot, sample_id: str) -> list[dict[str, Any]]:
    """Return what a sample keeps of each of its answers."""
    location = snapshot.location(sample_id)
    text = snapshot.part(location).sample(location.row_start, location.n_tokens).text
    return [turn["generated"] for turn in json.loads(text or "null")]


def assert_whole(folder: Path) -> None:
    for name in ("small", "small.audit"):
        assert verify(Dataset.open(LocalDoor(folder / "data"), name)).problems == []


def runs_of(mask: np.ndarray[Any, Any]) -> list[int]:
    """Return the lengths of the stretches of trained tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]])))
    return [int(length) for length in np.diff(edges.reshape(-1, 2), axis=1)[:, 0]]


def test_at_temperature_0_all_answers_are_what_the_head_on_final_chooses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    summary = run(generating(tmp_path, generate__temperature=0.0))
    assert (summary.n_samples, summary.on_policy_counts.rate) == (len(LENGTHS), 1.0)
    assert summary.on_policy_counts.positions > 64
    (found,) = Dataset.open(LocalDoor(tmp_path / "data"), "small").run_checks()
    assert (found.on_policy, found.n_unbound) == (1.0, len(LENGTHS))
    assert found.binding == "by nothing (the engine synthetic has no model whose head could be asked)"
    assert problems_of(summary, 1.0, greedy=True) == []
    (problem,) = problems_of(replace(summary, on_policy_counts=OnPolicyCounts(200, 0, 180)), 1.0, greedy=True)
    assert (problem.where, problem.kind) == ("final", "on_policy")
    capsys.readouterr()
    assert show([f"{tmp_path / 'data'}/small"]) == 0
    told = capsys.readouterr().out
    assert "on-policy    100.0% of the target's own answers: " in told
    assert (
        f"bound        0 of {len(LENGTHS)} samples of run {summary.run_id} to their ids, by nothing" in told
    )


def test_every_prompt_is_answered_and_what_is_captured_is_a_fresh_prefill(tmp_path: Path) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    config = generating(tmp_path, workers__count=2, generate__batch=3)
    summary = run(config)
    assert (summary.outcome, summary.n_samples, summary.quarantined) == ("complete", len(LENGTHS), {})
    assert_whole(tmp_path)
    snapshot = snapshot_of(tmp_path)
    engine = open_engine(config.engine, snapshot.schema)
    asks = {prompt.prompt_id: prompt for prompt in prepare(config, "run").prompts}
    finishes = set()
    for sample_id in snapshot.sample_ids:
        sample = snapshot.read(sample_id)
        ask = asks.pop(sample.prompt_id)
        assert ask.ask is not None
        ids, mask = sample.tokens["input_ids"], sample.tokens["loss_mask"]
        assert ids[: ask.n_tokens].tolist() == ask.input_ids.tolist()
        assert not mask[: ask.n_tokens].any()
        said = said_in(snapshot, sample_id)
        assert [one["n_tokens"] for one in said] == runs_of(mask)
        assert len(said) == 1 + len(ask.ask.following)
        finishes |= {one["finish"] for one in said}
        (expected,) = engine.submit([ids.tolist()]).result()
        for name in snapshot.schema.names:
            assert sample.tensors[name].tobytes() == expected.tensors[name].tobytes()
    assert not asks
    assert finishes == {"stop", "length"}


def test_run_again_nothing_is_made_twice_and_more_answers_are_added(tmp_path: Path) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    first = run(generating(tmp_path))
    again = run(generating(tmp_path))
    assert (first.n_samples, again.n_samples, again.already_made) == (len(LENGTHS), 0, len(LENGTHS))
    kept = set(snapshot_of(tmp_path).sample_ids)
    more = run(generating(tmp_path, generate__n=3))
    assert (more.n_samples, more.already_made) == (2 * len(LENGTHS), len(LENGTHS))
    assert kept < set(snapshot_of(tmp_path).sample_ids)
    assert_whole(tmp_path)


def test_the_same_seed_makes_the_same_dataset_in_other_batches_and_another_seed_another(
    tmp_path: Path,
) -> None:
    made = []
    for name, changes in {
        "a": {},
        "b": {"generate__batch": 2, "workers__count": 2},
        "c": {"generate__seed": 1},
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        write_asks(folder / "prompts.jsonl", LENGTHS)
        run(generating(folder, **changes))
        made.append(set(snapshot_of(folder).sample_ids))
    assert made[0] == made[1]
    assert not made[0] & made[2]


def test_other_sampling_is_refused_with_every_difference(tmp_path: Path) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    run(generating(tmp_path))
    with pytest.raises(ResumeError, match=r"'temperature': 0\.7") as caught:
        run(generating(tmp_path, generate__temperature=0.9))
    assert caught.value.exit_code == 2
    with pytest.raises(ResumeError, match="expected 'generate' as in the dataset, got 'capture'"):
        run(synthetic_config(tmp_path))


def test_an_answer_that_was_given_before_is_recorded_not_made_again(tmp_path: Path) -> None:
    """Of answers of one token every second one is the token that ends it: the same, in a part and across."""
    write_asks(tmp_path / "prompts.jsonl", [4, 6])
    few = {
        "generate__max_tokens": 1,
        "generate__n": 40,
        "parts__max_samples": 16,
    }
    config = generating(tmp_path, **few, prompts__max_tokens=8)
    summary = run(config)
    assert summary.n_samples + summary.n_quarantined == 80
    assert set(summary.quarantined) == {"duplicate_answer"}
    assert problems_of(summary, 0.0) == []
    assert_whole(tmp_path)
    again = run(config)
    assert (again.n_samples, again.n_quarantined) == (0, 0)


def test_answers_that_are_cut_are_quarantined_where_asked_for(tmp_path: Path) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    summary = run(generating(tmp_path, generate__on_truncated="quarantine"))
    assert summary.quarantined["truncated_answer"] > 0
    assert summary.n_samples + summary.n_quarantined == len(LENGTHS)
    snapshot = snapshot_of(tmp_path)
    for sample_id in snapshot.sample_ids:
        assert {one["finish"] for one in said_in(snapshot, sample_id)} == {"stop"}


def test_a_prompt_that_kills_its_workers_is_found_and_given_up(tmp_path: Path) -> None:
    lengths = LENGTHS[:3]
    write_asks(tmp_path / "prompts.jsonl", [*lengths, DEADLY_LENGTH])
    summary = run(generating(tmp_path, workers__unit_attempts=2), DeadlyWorker)
    assert (summary.n_samples, summary.quarantined) == (len(lengths), {"poison": 1})
    (row,) = snapshot_of(tmp_path).quarantined()
    assert (row.source, row.sample_id) == (f"prompts.jsonl:{len(lengths) + 1}", None)
    assert run(generating(tmp_path)).n_samples == 0


def test_the_plan_has_room_for_what_is_written(tmp_path: Path) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS * 3)
    config = generating(tmp_path)
    prepared = prepare(config, "run")
    expected = predict(config, prepared.schema, prepared.prompts)
    most = predict(config, prepared.schema, prepared.prompts, at_most=True)
    run(config)
    written = sum(path.stat().st_size for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert written <= most.total_bytes
    assert expected.n_tokens < most.n_tokens
    assert expected.n_tokens == sum(prompt.n_planned for prompt in prepared.prompts)
    assert snapshot_of(tmp_path).version.n_tokens <= most.n_tokens


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"generate__n": 2, "generate__temperature": 0}, "generate.n: expected 1 at temperature 0"),
        ({"prompts__max_tokens": ANSWER}, "generate.max_tokens: expected fewer than prompts.max_tokens"),
        ({"generate__stop": "x"}, "generate.stop: expected none for the engine synthetic"),
        ({"generate__top_p": 0}, "generate.top_p"),
    ],
)
def test_what_contradicts_itself_is_told_before_anything(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        generating(tmp_path, **changes)


def test_a_section_without_its_limit_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"generate\.max_tokens"):
        synthetic_config(tmp_path, generate__temperature=1)


def _ids(prompts: tuple[Prompt, ...]) -> set[str]:
    return {prompt.prompt_id for prompt in prompts}


def test_a_prompt_id_follows_from_what_decides_the_answer(tmp_path: Path) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    base = _ids(prepare(generating(tmp_path), "run").prompts)
    assert len(base) == len(LENGTHS)
    assert base == _ids(prepare(generating(tmp_path, generate__batch=1), "run").prompts)
    for changes in ({"generate__seed": 2}, {"generate__top_p": 0.5}, {"generate__max_tokens": 9}):
        assert not base & _ids(prepare(generating(tmp_path, **changes), "run").prompts)
