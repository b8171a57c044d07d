"""The target's identity: what changes it, what does not, and what it costs to read."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

from datagen.engines.architecture import architecture_of_file
from datagen.engines.identity import read_target
from datagen.engines.settings import EngineSettings
from datagen.engines.weights import hub_hash, weights_digest
from schemas.problem import Problem
from schemas.record import sha256_hex
from schemas.target import Target, WeightsDigest
from tests.datagen.engines.conftest import TinyFolder


@pytest.fixture
def folder(tiny_folder: TinyFolder, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder("llama"), tmp_path / "llama"))


def target_of(folder: Path) -> Target:
    return read_target(EngineSettings(model=str(folder)))


def digest_of(folder: Path) -> WeightsDigest:
    digest = weights_digest(folder)
    assert not isinstance(digest, Problem)
    return digest


def test_says_what_the_model_is(folder: Path) -> None:
    target = target_of(folder)
    assert (target.model_id, target.revision) == ("llama", None)
    assert (target.model_type, target.architecture) == ("llama", "LlamaForCausalLM")
    assert (target.n_layers, target.hidden_size, target.vocab_size) == (3, 48, 211)
    assert target.weights.method == "sampled_safetensors"
    assert target.quantisation is None
    assert target.chat_template_sha256 is None


def test_a_copy_elsewhere_is_the_same_target(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "other-name"))
    assert target_of(copy).identity() == target_of(folder).identity()


def test_sizes_that_go_by_other_names(tiny_folder: TinyFolder) -> None:
    target = target_of(tiny_folder("gpt2"))
    assert (target.n_layers, target.hidden_size) == (3, 48)


def test_the_shape_of_a_lone_config_file(tiny_folder: TinyFolder, tmp_path: Path) -> None:
    """As a plan reads it: under any name, and pointing to code that is not there."""
    config = json.loads((tiny_folder("kimi_k25") / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "configuration_kimi_k25.KimiK25Config"}
    file = tmp_path / "kimi.json"
    file.write_text(json.dumps(config))
    shape = architecture_of_file(file)
    assert (shape.model_type, shape.name) == ("kimi_k25", config["architectures"][0])
    assert (shape.n_layers, shape.hidden_size, shape.vocab_size) == (3, 48, 211)


def _weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file({name: np.asarray(values) + 1 for name, values in tensors.items()}, file, {"format": "pt"})


def _config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def _file(name: str, text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(text)

    return change


CHANGES: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "weights": (_weights, {"weights"}),
    "quantisation": (
        _config(quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}),
        {"quantisation"},
    ),
    "tokenizer": (_file("tokenizer.json", '{"version": "2"}'), {"tokenizer_sha256"}),
    "added tokens": (_file("added_tokens.json", "{}"), {"tokenizer_sha256"}),
    "chat template": (_file("chat_template.jinja", "{{ messages }}"), {"chat_template_sha256"}),
    "readme": (_file("README.md", "about"), set()),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_changes_it(folder: Path, case: str) -> None:
    before = target_of(folder).identity()
    change, expected = CHANGES[case]
    change(folder)
    after = target_of(folder).identity()
    assert {key for key in before if before[key] != after[key]} == expected


def test_the_template_is_digested_as_transformers_loads_it(folder: Path) -> None:
    for place in ("tokenizer_config.json", "chat_template.jinja"):
        text = f"{{{{ messages }}}} from {place}"
        if place.endswith(".json"):
            file = folder / place
            file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": text}))
        else:
            (folder / place).write_text(text)
        loaded = AutoTokenizer.from_pretrained(folder).chat_template
        assert loaded == text
        assert target_of(folder).chat_template_sha256 == sha256_hex(loaded.encode())


def test_where_the_template_stands_does_not_change_the_tokenizer(folder: Path) -> None:
    before = target_of(folder).tokenizer_sha256
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": "x"}, indent=7))
    assert target_of(folder).tokenizer_sha256 == before


def test_every_sampled_byte_counts(tmp_path: Path) -> None:
    """First byte, last byte, name and size; a file is 4 MB, of which 256 KiB are read."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 255, 4_000_000, dtype=np.uint8)
    save_file({"w": values}, tmp_path / "model.safetensors")
    digests = {digest_of(tmp_path).sha256}
    for index in (0, -1):
        values[index] ^= 1
        save_file({"w": values}, tmp_path / "model.safetensors")
        digests.add(digest_of(tmp_path).sha256)
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    digests.add(digest_of(tmp_path).sha256)
    save_file({"w": values[:-1]}, tmp_path / "other.safetensors")
    digests.add(digest_of(tmp_path).sha256)
    assert len(digests) == 5


def test_the_hubs_own_hashes_are_taken_from_its_cache(tmp_path: Path, folder: Path) -> None:
    blob = sha256_hex((folder / "model.safetensors").read_bytes())
    repository = tmp_path / "models--owner--name"
    (repository / "blobs").mkdir(parents=True)
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    shutil.copy(folder / "model.safetensors", repository / "blobs" / blob)
    os.symlink(f"../../blobs/{blob}", snapshot / "model.safetensors")
    assert hub_hash(snapshot / "model.safetensors") == blob
    in_cache = digest_of(snapshot)
    assert in_cache.method == "hub_file_hashes"

    record = folder / ".cache" / "huggingface" / "download" / "model.safetensors.metadata"
    record.parent.mkdir(parents=True)
    downloaded = (folder / "model.safetensors").stat().st_mtime
    record.write_text(f"{'0' * 40}\n{blob}\n{downloaded}\n")
    assert digest_of(folder) == in_cache
    os.utime(folder / "model.safetensors", (downloaded + 60, downloaded + 60))
    assert digest_of(folder).method == "sampled_safetensors"


def test_a_hub_id_in_the_cache_needs_no_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--owner--name"
    commit = "1" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(folder, repository / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    target = read_target(EngineSettings(model="owner/name"))
    assert (target.model_id, target.revision) == ("owner/name", commit)


def test_settings_and_the_synthetic_engine_load_no_torch() -> None:
    code = (
        "import sys; from datagen.engines.opening import open_engine, read_target;"
        "from datagen.engines.settings import EngineSettings; from schemas.schema import Schema;"
        "s = EngineSettings(name='synthetic');"
        "open_engine(s, Schema.declare(read_target(s), ['embed'], 'bfloat16')).submit([[1]]).result();"
        "print(sorted({'torch', 'transformers', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_settings_alone_load_no_numpy() -> None:
    code = "import sys, datagen.engines.settings; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
