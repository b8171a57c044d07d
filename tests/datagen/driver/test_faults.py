"""Every fault of the field is caught by its name where states are made, and nothing bad becomes a part."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from datagen.checks import Calibration, NormProfile
from datagen.checks.profile import behind_first
from datagen.engines.base import Capture, Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings, SyntheticSettings
from datagen.planning.audit import audit_schema, read_audit, read_calibration
from datagen.planning.units import Unit
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.part_reader import PartReader
from datagen.worker.making import PartMaker, UnitResult
from schemas.schema import Schema
from tests.datagen.faulty_engine import (
    Fault,
    FaultyEngine,
    Stale,
    another_requests,
    dropped,
    every,
    ids_shifted,
    longest,
    post_norm,
    slow,
    swapped,
    with_tensor,
    without_beginning,
)
from tests.datagen.prompt_builders import chat_prompts, random_prompts

SETTINGS = EngineSettings(
    name="synthetic", synthetic=SyntheticSettings(n_layers=4, hidden_size=32, vocab_size=1000)
)
TARGET = read_target(SETTINGS)
SCHEMA = Schema.declare(TARGET, ("embed", "layer2", "final"), "bfloat16")
PROMPTS = chat_prompts([60, 40, 40, 40, 24, 24], seed=3)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    """What the audit set of the right engine says: of other conversations under the same template."""
    door = LocalDoor(tmp_path_factory.mktemp("audit"))
    schema = audit_schema(TARGET, "bfloat16")
    dataset = Dataset.create(door, "small.audit", schema, exist_ok=False)
    maker = PartMaker(
        open_engine(SETTINGS, schema), door, "small.audit", "run", 256, recapture=False, with_argmax=True
    )
    made = maker.make(Unit("audit", tuple(chat_prompts([30, 30], seed=9))))
    assert made.part is not None
    dataset.commit([made.part], [], run_id="run")
    snapshot = dataset.snapshot()
    return read_calibration(snapshot, read_audit(snapshot))


def made_with(folder: Path, fault: Fault, calibration: Calibration) -> UnitResult:
    engine = FaultyEngine(open_engine(SETTINGS, SCHEMA), fault)
    maker = PartMaker(engine, LocalDoor(folder), "small", "run", 90, calibration=calibration)
    return maker.make(Unit("0", tuple(PROMPTS)))


def assert_right(folder: Path, result: UnitResult) -> None:
    """Every sample of the part holds what the right engine gives, and was not refused too."""
    refused = {row.sample_id for row in result.quarantined}
    right = open_engine(SETTINGS, SCHEMA)
    ids = {prompt.sample_id: prompt.input_ids.tolist() for prompt in PROMPTS}
    made = set()
    if result.part is not None:
        reader = PartReader(LocalDoor(folder), "small", result.part.record.part_id, SCHEMA)
        for sample in reader.samples():
            (expected,) = right.submit([ids[sample.sample_id]]).result()
            made.add(sample.sample_id)
            for name in SCHEMA.names:
                rows = reader.read_tensor(sample.row_start, sample.n_tokens, name)
                assert rows.tobytes() == expected.tensors[name].tobytes()
    assert made | refused == set(ids)
    assert not made & refused


def _zeros(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.zeros_like(rows)


def _not_a_number(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    spoilt = rows.copy()
    spoilt[3, 5] = np.nan
    return spoilt


def _shifted(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.roll(rows, 1, axis=0)


def _copied_too_early(capture: Capture) -> Capture:
    return replace(capture, tensors={**capture.tensors, "layer2": _zeros(capture.tensors["layer2"])})


OF_A_SAMPLE: dict[str, tuple[Fault, str, str]] = {
    "drops a tensor": (
        longest(dropped("layer2")),
        "wrong_content",
        r"^layer2: expected .*, got no such tensor",
    ),
    "swaps two": (
        longest(swapped("layer2", "final")),
        "wrong_content",
        r"^layer2: .* they look like `final`; final: .* they look like `layer2`$",
    ),
    "shortens by a cached prefix": (
        longest(without_beginning(8)),
        "wrong_content",
        r"embed: expected .*layer2: expected .*final: expected ",
    ),
    "gives post-norm": (
        longest(post_norm(open_engine(SETTINGS, SCHEMA))),
        "wrong_content",
        r"^final: .* they look like `final` after its norm$",
    ),
    "gives NaN": (longest(with_tensor("layer2", _not_a_number)), "non_finite", r"^layer2: .* at token 3$"),
    "ids shifted by one": (
        longest(ids_shifted),
        "wrong_content",
        r"^input_ids: expected token 1 at position 0, got 9$",
    ),
    "states shifted by one": (
        longest(with_tensor("layer2", _shifted)),
        "wrong_content",
        r"^layer2: .* they look like `layer2` of the token before each$",
    ),
    "all zero": (
        longest(with_tensor("layer2", _zeros)),
        "wrong_content",
        r"^layer2: expected states, got zeros in \d+ of \d+ rows$",
    ),
    "copied too early": (
        longest(_copied_too_early),
        "wrong_content",
        r"^layer2: expected a row of the norm .* that the engine computed, got 0 at token 0$",
    ),
}


@pytest.mark.parametrize("name", OF_A_SAMPLE)
def test_a_fault_of_a_sample_refuses_that_sample_by_name(
    tmp_path: Path, calibration: Calibration, name: str
) -> None:
    fault, reason, told = OF_A_SAMPLE[name]
    result = made_with(tmp_path, fault, calibration)
    assert result.part is not None
    assert result.wrong == ()
    assert {row.reason for row in result.quarantined} == {reason}
    for row in result.quarantined:
        assert re.search(told, row.detail), row.detail
    assert_right(tmp_path, result)


OF_A_PART: dict[str, tuple[Fault, tuple[str, ...], str]] = {
    "another request's": (another_requests, SCHEMA.names, "they look like no tensor of these tokens"),
    "stale": (Stale(), SCHEMA.names, "they look like no tensor of these tokens"),
}


@pytest.mark.parametrize("name", OF_A_PART)
def test_a_fault_that_no_sample_shows_refuses_the_part(
    tmp_path: Path, calibration: Calibration, name: str
) -> None:
    fault, where, told = OF_A_PART[name]
    result = made_with(tmp_path, fault, calibration)
    assert result.part is None
    assert result.n_tokens == 0
    assert tuple(problem.where for problem in result.wrong) == where
    assert all(problem.kind == "recapture" and told in problem.message for problem in result.wrong)
    assert {row.reason for row in result.quarantined} == {"wrong_content"}
    assert any(row.detail.startswith("with its part: embed: ") for row in result.quarantined)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert_right(tmp_path, result)


def test_norms_that_grow_behind_the_beginning_refuse_the_part(tmp_path: Path) -> None:
    """Of samples that begin like none of the audit set only the profile is left, and the second pass."""

    def grown(rows: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.asarray(
            rows.astype(np.float32) * np.where(np.arange(len(rows)) % 9, 1, 8)[:, None], rows.dtype
        )

    right: Engine = open_engine(SETTINGS, SCHEMA)
    prompts = random_prompts([300, 300, 300])
    captures = right.submit([prompt.input_ids.tolist() for prompt in prompts]).result()
    profiles = {
        name: NormProfile.of(behind_first([capture.norms[name] for capture in captures]))
        for name in SCHEMA.names
    }
    engine = FaultyEngine(right, every(with_tensor("layer2", grown)))
    maker = PartMaker(engine, LocalDoor(tmp_path), "small", "run", 300, calibration=Calibration(profiles))
    result = maker.make(Unit("0", tuple(prompts)))
    (problem,) = result.wrong
    assert (problem.where, problem.kind) == ("layer2", "norm_profile")
    assert "99% of the token norms near or below" in problem.message
    assert result.part is None


def test_a_slow_engine_is_only_slow(tmp_path: Path, calibration: Calibration) -> None:
    result = made_with(tmp_path, slow(0.02), calibration)
    assert result.part is not None
    assert result.part.record.n_samples == len(PROMPTS)
    assert (result.quarantined, result.wrong) == ((), ())
    assert_right(tmp_path, result)
