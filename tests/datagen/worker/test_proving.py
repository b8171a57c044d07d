"""An audit part beside a witness: what transformers, or a second pass, says of an engine's boundaries."""

from pathlib import Path

import pytest
import torch

from datagen.checks.witness import Reference
from datagen.engines.base import Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.reference import free_memory, has_experts, why_no_reference
from datagen.engines.settings import EngineSettings
from datagen.planning.audit import MIN_AGREEMENT, audit_schema
from datagen.planning.units import Unit
from datagen.store.local import LocalDoor
from datagen.store.part_reader import PartReader
from datagen.worker.making import PartMaker
from datagen.worker.proving import AuditResult, prove_part
from schemas.schema import DType
from tests.datagen.engines import tiny_models
from tests.datagen.faulty_engine import (
    FaultyEngine,
    another_requests,
    every,
    post_norm,
    swapped,
)
from tests.datagen.prompt_builders import random_prompts


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    return {name: tiny_models.save(name, root / name) for name in ("llama", "qwen3_moe")}


def settings_of(folder: Path, dtype: DType) -> EngineSettings:
    return EngineSettings(model=str(folder), device="cpu", dtype=dtype, threads=1)


def opened(settings: EngineSettings) -> Engine:
    return open_engine(settings, audit_schema(read_target(settings), settings.dtype))


def proven(
    folder: Path, settings: EngineSettings, engine: Engine, reference: Reference = "hf"
) -> AuditResult:
    door = LocalDoor(folder)
    maker = PartMaker(engine, door, "small.audit", "run", 256, recapture=False, with_argmax=True)
    prompts = random_prompts([40, 40, 40, 25], tiny_models.VOCAB)
    made = maker.make(Unit("audit", tuple(prompts)))
    assert made.part is not None
    reader = PartReader(door, "small.audit", made.part.record.part_id, engine.schema)
    return prove_part(made, reader, engine, settings, reference)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_a_right_engine_is_confirmed_by_transformers(
    tmp_path: Path, folders: dict[str, Path], name: str, dtype: DType
) -> None:
    settings = settings_of(folders[name], dtype)
    found = proven(tmp_path, settings, opened(settings))
    assert found.problems == ()
    assert found.witness.startswith("transformers ")
    assert found.witness.endswith(" on cpu")
    assert {tensor.name for tensor in found.tensors} == set(opened(settings).schema.names)
    for tensor in found.tensors:
        assert tensor.distance is not None
        assert tensor.median < tensor.distance / 5
    assert found.agreeing >= MIN_AGREEMENT * (found.positions - found.tied)


def test_boundaries_that_are_always_swapped_are_told_by_transformers_alone(
    tmp_path: Path, folders: dict[str, Path]
) -> None:
    settings = settings_of(folders["llama"], "bfloat16")
    engine = FaultyEngine(opened(settings), every(swapped("layer1", "layer2")))
    found = proven(tmp_path / "hf", settings, engine)
    assert [problem.where for problem in found.problems] == ["layer1", "layer2"]
    assert "it looks like `layer2`" in found.problems[0].message
    assert "it looks like `layer1`" in found.problems[1].message
    itself = proven(tmp_path / "engine", settings, engine, "engine")
    assert itself.problems == ()
    assert itself.witness == "hf itself, in a second pass"


def test_post_norm_for_pre_norm_is_told_by_transformers(tmp_path: Path, folders: dict[str, Path]) -> None:
    settings = settings_of(folders["llama"], "bfloat16")
    right = opened(settings)
    found = proven(tmp_path, settings, FaultyEngine(right, every(post_norm(right))))
    assert [problem.where for problem in found.problems] == ["final"]
    assert "it looks like `final_normed`" in found.problems[0].message


def test_mixed_up_requests_are_told_by_a_second_pass(tmp_path: Path, folders: dict[str, Path]) -> None:
    settings = settings_of(folders["llama"], "bfloat16")
    engine = FaultyEngine(opened(settings), another_requests)
    found = proven(tmp_path, settings, engine, "engine")
    assert {problem.where for problem in found.problems} == set(engine.schema.names)


def test_no_witness_is_asked_where_none_is_wanted(tmp_path: Path, folders: dict[str, Path]) -> None:
    settings = settings_of(folders["llama"], "bfloat16")
    found = proven(tmp_path, settings, opened(settings), "none")
    assert (found.witness, found.tensors, found.problems) == ("none", (), ())


def test_a_head_without_a_single_choice_says_so(folders: dict[str, Path]) -> None:
    engine = opened(settings_of(folders["llama"], "bfloat16"))
    (capture,) = engine.submit([[1, 2, 3]]).result()
    final = capture.tensors["final"].copy()
    final[1] = 0
    assert engine.head_ties(final)[1]  # type: ignore[attr-defined]
    assert not engine.head_ties(final)[0]  # type: ignore[attr-defined]


def test_whether_transformers_fits_beside_an_engine_is_asked_of_the_memory(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(folders["qwen3_moe"], "bfloat16")
    target = read_target(settings)
    assert why_no_reference(settings, target) is None
    monkeypatch.setattr("datagen.engines.reference.free_memory", lambda: 1000)
    assert "bytes of memory, and 1,000 are free" in str(why_no_reference(settings, target))
    quantised = target.model_copy(update={"quantisation": "fp8"})
    assert why_no_reference(settings, quantised) == "the weights are quantised (fp8)"
    assert has_experts(settings)
    assert not has_experts(settings_of(folders["llama"], "bfloat16"))
    have = free_memory()
    assert have is None or have > 0
