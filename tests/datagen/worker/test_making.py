"""What a worker makes of a unit, with a right engine and with one that does one thing wrong at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.checks import Calibration, NormProfile
from datagen.engines.base import Capture, Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings, SyntheticSettings
from datagen.errors import RunFailedError
from datagen.planning.units import Unit
from datagen.store.local import LocalDoor
from datagen.store.part_reader import PartReader
from datagen.worker.making import PartMaker
from schemas.schema import Schema
from tests.datagen.faulty_engine import Fault, FaultyEngine
from tests.datagen.prompt_builders import random_prompts

SETTINGS = EngineSettings(
    name="synthetic", synthetic=SyntheticSettings(n_layers=4, hidden_size=32, vocab_size=1000)
)
SCHEMA = Schema.declare(read_target(SETTINGS), ("embed", "layer2", "final"), "bfloat16")
LENGTHS = [1, 7, 64, 65, 130, 30, 200, 3]
Change = Callable[[Mapping[str, NDArray[np.generic]]], Mapping[str, NDArray[np.generic]]]


def maker(folder: Path, engine: Engine, **changes: object) -> PartMaker:
    made = PartMaker(engine=engine, door=LocalDoor(folder), dataset="small", run_id="run", batch_tokens=256)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_unit_becomes_a_part_with_every_sample_as_the_engine_gave_it(tmp_path: Path) -> None:
    unit = Unit("0", tuple(random_prompts(LENGTHS)))
    engine = open_engine(SETTINGS, SCHEMA)
    result = maker(tmp_path, engine).make(unit)
    assert result.part is not None
    assert (result.quarantined, result.unfinished) == ((), ())
    assert result.part.record.n_samples == len(LENGTHS)
    reader = PartReader(LocalDoor(tmp_path), "small", result.part.record.part_id, SCHEMA)
    by_id = {prompt.sample_id: prompt for prompt in unit.prompts}
    for sample in reader.samples():
        prompt = by_id.pop(sample.sample_id)
        (expected,) = engine.submit([prompt.input_ids.tolist()]).result()
        for name in SCHEMA.names:
            rows = reader.read_tensor(sample.row_start, sample.n_tokens, name)
            assert rows.tobytes() == expected.tensors[name].tobytes()
        mask = reader.read_tokens(sample.row_start, sample.n_tokens, "loss_mask")
        assert np.array_equal(mask, prompt.loss_mask)
    assert not by_id


def test_told_to_stop_it_closes_what_it_has_and_gives_back_the_rest(tmp_path: Path) -> None:
    asked = iter([False, False, True, True, True, True, True, True])
    unit = Unit("0", tuple(random_prompts(LENGTHS)))
    result = maker(tmp_path, open_engine(SETTINGS, SCHEMA), stopping=lambda: next(asked)).make(unit)
    assert result.part is not None
    made = {row["sample_id"].hex() for row in result.part.samples.to_pylist()}
    left = {prompt.sample_id for prompt in result.unfinished}
    assert made
    assert left
    assert made | left == {prompt.sample_id for prompt in unit.prompts}
    assert not made & left


def _tensors(change: Change) -> Fault:
    """Return the fault that changes the tensors of each batch's longest sample."""

    def spoil(captures: Sequence[Capture]) -> Sequence[Capture]:
        first, *rest = captures
        return [replace(first, tensors=change(first.tensors)), *rest]

    return spoil


def _with(name: str, value: NDArray[np.generic]) -> Change:
    return lambda tensors: {**tensors, name: value}


def _cut(tensors: Mapping[str, NDArray[np.generic]]) -> Mapping[str, NDArray[np.generic]]:
    return {**tensors, "layer2": tensors["layer2"][:-1]}


def _not_a_number(tensors: Mapping[str, NDArray[np.generic]]) -> Mapping[str, NDArray[np.generic]]:
    spoilt = tensors["final"].copy()
    spoilt[-1, -1] = np.nan
    return {**tensors, "final": spoilt}


def _swapped_ids(captures: Sequence[Capture]) -> Sequence[Capture]:
    first, *rest = captures
    return [replace(first, token_ids=first.token_ids[::-1].copy()), *rest]


FAULTS: dict[str, tuple[Fault, str, str]] = {
    "dropped tensor": (
        _tensors(lambda t: {name: rows for name, rows in t.items() if name != "layer2"}),
        "wrong_content",
        "layer2: expected layer2: bfloat16[token, 32], got no such tensor",
    ),
    "undeclared tensor": (
        _tensors(lambda t: {**t, "layer3": t["layer2"]}),
        "wrong_content",
        "layer3: expected only embed, layer2, final, got 'layer3' too",
    ),
    "another dtype": (
        _tensors(lambda t: {**t, "embed": t["embed"].astype(np.float32)}),
        "wrong_content",
        "embed: expected bfloat16, got float32",
    ),
    "a row to broadcast": (
        _tensors(_with("embed", np.zeros((1, 32), ml_dtypes.bfloat16))),
        "wrong_content",
        "embed: expected (",
    ),
    "shortened": (_tensors(_cut), "wrong_content", "layer2: expected ("),
    "another width": (
        _tensors(lambda t: {**t, "final": np.ascontiguousarray(t["final"][:, :16])}),
        "wrong_content",
        "final: expected (",
    ),
    "not a number": (_tensors(_not_a_number), "non_finite", "final: "),
    "token ids of another order": (_swapped_ids, "wrong_content", "input_ids: expected token"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_capture_is_refused_by_name_and_the_others_are_kept(tmp_path: Path, name: str) -> None:
    fault, reason, told = FAULTS[name]
    unit = Unit("0", tuple(random_prompts([50, 50, 50, 50])))
    engine = FaultyEngine(open_engine(SETTINGS, SCHEMA), fault)
    result = maker(tmp_path, engine, batch_tokens=100).make(unit)
    assert result.part is not None
    assert result.part.record.n_samples == 2
    assert [row.reason for row in result.quarantined] == [reason, reason]
    assert all(told in row.detail for row in result.quarantined)
    assert all(row.prompt_id and row.sample_id and row.source for row in result.quarantined)


def test_when_all_are_refused_there_is_no_part_and_nothing_is_left(tmp_path: Path) -> None:
    unit = Unit("0", tuple(random_prompts([50])))
    result = maker(tmp_path, FaultyEngine(open_engine(SETTINGS, SCHEMA), _swapped_ids)).make(unit)
    assert result.part is None
    assert len(result.quarantined) == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_engine_that_loses_count_stops_the_unit_and_leaves_nothing(tmp_path: Path) -> None:
    unit = Unit("0", tuple(random_prompts([50, 50])))
    engine = FaultyEngine(open_engine(SETTINGS, SCHEMA), lambda captures: captures[1:])
    with pytest.raises(RunFailedError, match="lost count"):
        maker(tmp_path, engine).make(unit)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_swapped_tensors_are_told_by_the_calibration(tmp_path: Path) -> None:
    unit = Unit("0", tuple(random_prompts([200] * 5)))
    right = open_engine(SETTINGS, SCHEMA)
    norms = [capture.norms for capture in right.submit([p.input_ids.tolist() for p in unit.prompts]).result()]
    calibration = {
        name: NormProfile.of(np.concatenate([sample[name] for sample in norms])) for name in SCHEMA.names
    }
    calibrated = Calibration(calibration)
    assert maker(tmp_path, right, calibration=calibrated).make(unit).part is not None

    def swapped(captures: Sequence[Capture]) -> Sequence[Capture]:
        return [
            replace(
                capture,
                tensors={
                    **capture.tensors,
                    "embed": capture.tensors["final"],
                    "final": capture.tensors["embed"],
                },
                norms={**capture.norms, "embed": capture.norms["final"], "final": capture.norms["embed"]},
            )
            for capture in captures
        ]

    result = maker(tmp_path / "other", FaultyEngine(right, swapped), calibration=calibrated).make(unit)
    assert [problem.where for problem in result.wrong] == ["embed", "final"]
    assert result.part is None
    assert [row.reason for row in result.quarantined] == ["wrong_content"] * 5


def test_answers_at_temperature_0_that_the_head_would_not_give_refuse_the_part(tmp_path: Path) -> None:
    unit = Unit("0", tuple(random_prompts(LENGTHS)))
    engine = open_engine(SETTINGS, SCHEMA)
    result = maker(tmp_path, engine, answered="greedily").make(unit)
    assert result.part is None
    assert [(problem.where, problem.kind) for problem in result.wrong] == [("final", "on_policy")]
    assert len(result.quarantined) == len(LENGTHS)
    sampled = maker(tmp_path, engine, answered="sampled").make(unit)
    assert sampled.part is not None
    assert sampled.on_policy.positions == result.on_policy.positions > 100
    assert maker(tmp_path, engine).make(unit).on_policy.positions == 0
