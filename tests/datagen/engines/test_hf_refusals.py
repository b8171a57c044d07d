"""What the hf engine refuses to open or to run: by name, all at once, and with what to do."""

import json
import shutil
from pathlib import Path

import pytest

from datagen.engines.errors import BatchError, EngineError, OpeningError
from datagen.engines.opening import open_engine, read_target
from datagen.engines.settings import EngineSettings
from schemas.schema import Schema
from schemas.target import Target
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.tiny_models import LONGEST


@pytest.fixture
def folder(tiny_folder: TinyFolder, tmp_path: Path) -> Path:
    """A copy of the tiny Llama that a test may spoil."""
    return Path(shutil.copytree(tiny_folder("llama"), tmp_path / "llama"))


def settings_of(folder: Path, **changes: object) -> EngineSettings:
    return EngineSettings.model_validate(
        {"model": str(folder), "dtype": "float32", "device": "cpu"} | changes
    )


def schema_of(folder: Path) -> Schema:
    return Schema.declare(read_target(settings_of(folder)), ["embed", "final"], "float32")


def refusal(settings: EngineSettings, schema: Schema | None = None) -> str:
    with pytest.raises(OpeningError) as caught:
        read_target(settings) if schema is None else open_engine(settings, schema)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    message = refusal(settings_of(tmp_path / "nowhere"))
    assert "nowhere: expected a folder or a hub id (OWNER/NAME), got no such folder" in message


def test_a_folder_without_config(tmp_path: Path) -> None:
    assert "expected config.json in the folder, got none" in refusal(settings_of(tmp_path))


def test_a_folder_has_no_revision(folder: Path) -> None:
    assert "expected no revision for a folder, got revision 'main'" in refusal(
        settings_of(folder, revision="main")
    )


def test_every_missing_file_at_once(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    message = refusal(settings_of(folder))
    assert "expected *.safetensors files, got none" in message
    assert "expected a tokenizer" in message


@pytest.mark.parametrize("length", [5, 200])
def test_weights_that_are_cut(folder: Path, length: int) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:length])
    assert "expected a safetensors file" in refusal(settings_of(folder))


def test_a_config_that_is_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    assert "the model's config cannot be read" in refusal(settings_of(folder))


def test_a_type_that_transformers_does_not_have(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "unheard_of"}))
    assert "unheard_of" in refusal(settings_of(folder))


def test_code_of_the_models_own_is_not_run_unasked(folder: Path) -> None:
    config = {"model_type": "unheard_of", "auto_map": {"AutoConfig": "code.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text("raise SystemExit('was run')")
    assert "set engine.trust_remote_code = true" in refusal(settings_of(folder))


def test_an_encoder_is_no_causal_model(folder: Path) -> None:
    schema = schema_of(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "t5gemma"}))
    with pytest.raises(OpeningError):
        open_engine(settings_of(folder), schema)


def test_another_dtype_than_the_schemas(folder: Path) -> None:
    message = refusal(settings_of(folder, dtype="bfloat16"), schema_of(folder))
    assert "embed: expected float32 as in the schema, got an engine that computes in bfloat16" in message
    assert "final: expected float32" in message
    assert "nothing is cast" in message


def test_another_target_than_the_schemas(folder: Path) -> None:
    schema = schema_of(folder)
    other = Target.model_validate(schema.target.model_dump() | {"quantisation": "fp8"})
    message = refusal(settings_of(folder), Schema.declare(other, ["embed"], "float32"))
    assert "target.quantisation: expected 'fp8', got None" in message


def test_cuda_where_there_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    schema = schema_of(folder)
    assert "engine.device: expected a CUDA device, got none" in refusal(
        settings_of(folder, device="cuda"), schema
    )


def test_an_attention_that_is_not_there(folder: Path) -> None:
    message = refusal(settings_of(folder, attn_implementation="no_such_attention"), schema_of(folder))
    assert "the model cannot be loaded" in message


def test_a_sample_longer_than_the_models_positions(folder: Path) -> None:
    engine = open_engine(settings_of(folder), schema_of(folder))
    engine.submit([[1] * LONGEST]).result()
    with pytest.raises(BatchError, match=f"sample 1: expected at most {LONGEST} tokens.*got {LONGEST + 1}"):
        engine.submit([[1], [1] * (LONGEST + 1)])


def test_rows_of_another_dtype_for_the_head(folder: Path) -> None:
    engine = open_engine(settings_of(folder), schema_of(folder))
    (capture,) = engine.submit([[1, 2]]).result()
    with pytest.raises(EngineError, match=r"final: expected torch.float32 \[T, 48\], got torch.float64"):
        engine.head_argmax(capture.tensors["final"].astype("float64"))
