"""What an engine would refuse at its opening, or compute otherwise than the model, is refused by the plan."""

from pathlib import Path

import pytest

from datagen.engines.opening import boundary_problems, longest_sample, open_engine, read_target
from datagen.engines.settings import EngineSettings, VllmSettings
from schemas.schema import Schema
from tests.datagen.engines import vllm_double
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.test_positions import LONGROPE, TRAINED, saved
from tests.datagen.engines.test_server_files import schema_of, server_of, settings_of


@pytest.fixture(scope="module")
def longrope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("longrope")
    saved(folder, LONGROPE)
    return folder


@pytest.mark.parametrize(("model", "refused"), [("gpt2", True), ("llama", False)])
def test_embed_of_a_server_that_lacks_it(
    model: str, refused: bool, tiny_folder: TinyFolder, tmp_path: Path
) -> None:
    with server_of(tiny_folder(model), tmp_path, ids=(1, 2)) as server:
        found = boundary_problems(settings_of(server), schema_of(server, ("embed", "layer1")))
    assert [problem.where for problem in found] == ["embed"] * refused
    assert all("wpe beside it" in problem.message for problem in found)


def test_a_server_whose_requests_may_pass_the_trained_length(longrope: Path, tmp_path: Path) -> None:
    with server_of(longrope, tmp_path, ids=(1, 2), longest=TRAINED) as server:
        assert boundary_problems(settings_of(server), schema_of(server, ("layer1",))) == []
    with server_of(longrope, tmp_path, ids=(1, 2), longest=64) as server:
        (problem,) = boundary_problems(settings_of(server), schema_of(server, ("layer1",)))
    assert f"at most the {TRAINED} tokens that the model was trained with, got 64" in problem.message
    assert f"--max-model-len {TRAINED}" in str(problem.repair)


def test_vllm_is_kept_within_the_trained_length(longrope: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(length: int | None) -> EngineSettings:
        own = VllmSettings(max_model_len=length)
        return EngineSettings(name="vllm", model=str(longrope), dtype="float32", vllm=own)

    schema = Schema.declare(read_target(settings(None)), ["layer1"], "float32")
    with vllm_double.standing_in(monkeypatch) as double:
        for length, longest in ((None, TRAINED - 1), (TRAINED, TRAINED - 1), (9, 8)):
            assert boundary_problems(settings(length), schema) == []
            assert longest_sample(settings(length)) == longest
        (problem,) = boundary_problems(settings(TRAINED + 1), schema)
        assert problem.where == "engine.vllm.max_model_len"
        assert f"prompts.max_tokens = {TRAINED - 1}" in str(problem.repair)
        open_engine(settings(None), schema).close()
        assert double.started[0].arguments["max_model_len"] == TRAINED


def test_sglang_takes_no_sample_beyond_the_trained_length(longrope: Path) -> None:
    settings = EngineSettings(name="sglang", model=str(longrope), dtype="float32")
    assert longest_sample(settings) == TRAINED - 1
