"""The engine `openai` against a real `vllm serve`: its contract, every boundary, the clean-up of files."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from datagen.engines.base import Engine
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from schemas.boundary import all_names
from schemas.calibration import CalibrationRecord
from schemas.schema import Schema
from tests.contract.engine_contract import EngineContract, token_errors
from tests.datagen.run_builders import flags
from tests.with_vllm import small_models
from tests.with_vllm.serving import SHARED, served, serving
from tests.with_vllm.test_run import settings as run_settings
from tests.with_vllm.test_run import strata, write_token_prompts

N_LAYERS = 4
NAMES = ("embed", "layer2", "final", "final_normed")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSettings]:
    folder = tmp_path_factory.mktemp("served")
    model = small_models.save("llama", folder / "llama")
    settings = served(model, range(N_LAYERS + 1), "float32", folder)
    with serving(settings, folder):
        yield settings
    assert sorted(path.name for path in (folder / SHARED).iterdir()) == []


@pytest.fixture
def engine(settings: EngineSettings) -> Iterator[Engine]:
    engine = open_engine(settings, Schema.declare(read_target(settings), NAMES, settings.dtype))
    yield engine
    engine.close()


class TestServed(EngineContract):
    SAME_TOKEN_TOLERANCE = 1e-4


def test_every_boundary_is_that_of_transformers(
    settings: EngineSettings, engine: Engine, figures: list[str]
) -> None:
    """By token, with the nearest other boundary beside it."""
    rng = np.random.default_rng(3)
    batch = [rng.integers(0, engine.target.vocab_size, n).tolist() for n in (60, 1, 130, 17)]
    hf = EngineSettings(name="hf", model=settings.model, dtype="float32", device="cpu")
    names = all_names(N_LAYERS)
    every = Schema.declare(engine.target, names, "float32")
    want = open_engine(hf, every).submit(batch).result()
    got = engine.handing_out(every).submit(batch).result()
    for name in names:
        own = np.concatenate(
            [token_errors(one.tensors[name], two.tensors[name]) for one, two in zip(got, want, strict=True)]
        )
        rivals = {
            other: np.median(
                np.concatenate(
                    [
                        token_errors(one.tensors[name], two.tensors[other])
                        for one, two in zip(got, want, strict=True)
                    ]
                )
            )
            for other in names
            if other != name
        }
        nearest = min(rivals, key=lambda other: rivals[other])
        figures.append(
            f"openai llama float32 {name}: median {np.median(own):.1e}, most {own.max():.1e}; "
            f"nearest other {nearest} {rivals[nearest]:.2f}"
        )
        assert own.max() < 1e-4, name
        assert rivals[nearest] > 0.2, name


def test_what_was_proven(settings: EngineSettings, engine: Engine) -> None:
    assert engine.info.extra["proven"] == "embed, final"
    assert engine.info.version.startswith("vllm 0.32")
    assert os.listdir(settings.openai.shared_folder) == []


def test_a_run_captures_through_the_server_and_leaves_nothing_there(
    settings: EngineSettings, tmp_path: Path
) -> None:
    """Driver, Ray worker, parts, the audit set against transformers, and every byte verified."""
    write_token_prompts(tmp_path)
    own = settings.openai
    changes = {
        "engine.name": "openai",
        "engine.dtype": "float32",
        "tensors.dtype": "float32",
        "engine.openai.base_url": own.base_url,
        "engine.openai.shared_folder": own.shared_folder,
        "engine.openai.layer_ids": json.dumps(own.layer_ids),
        "prompts.max_tokens": 100,
        "audit.samples": 4,
    }
    run = {
        name: value
        for name, value in run_settings(tmp_path, Path(str(settings.model))).items()
        if "vllm" not in name
    }
    strata("run", *flags({**run, **changes}))
    for name in ("small", "small.audit"):
        strata("verify", str(tmp_path / "data" / name))
    (file,) = (tmp_path / "data" / "small.audit" / "runs").glob("*/calibration.json")
    assert CalibrationRecord.model_validate_json(file.read_bytes()).witness.startswith("transformers")
    assert os.listdir(str(own.shared_folder)) == []
