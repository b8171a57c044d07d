"""What vLLM is asked for, what it cannot give, and what is told before it is loaded; no vLLM is needed."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from typing import Any

import pytest

from datagen.engines import vllm_inside
from datagen.engines.errors import OpeningError
from datagen.engines.opening import boundary_problems, engine_version, longest_sample, read_target
from datagen.engines.settings import EngineSettings, VllmSettings
from datagen.engines.vllm_layers import Layers, layers_of, passes, rotation_problem
from schemas.boundary import all_names
from schemas.schema import Schema
from schemas.target import Target, WeightsDigest
from tests.datagen.engines.conftest import TinyFolder
from tests.datagen.engines.tiny_models import LONGEST

PLAIN = SimpleNamespace()
RELEASE = "0.32.0"


def target(model_type: str, n_layers: int = 8) -> Target:
    return Target(
        model_id="m",
        revision=None,
        model_type=model_type,
        architecture="A",
        n_layers=n_layers,
        hidden_size=16,
        vocab_size=100,
        weights=WeightsDigest(method="synthetic", sha256="0" * 64),
        quantisation=None,
        tokenizer_sha256="1" * 64,
        chat_template_sha256=None,
    )


def declared(model_type: str, *names: str) -> Schema:
    return Schema.declare(target(model_type), names or all_names(8), "bfloat16")


def test_ids_are_boundaries_and_each_tensor_has_its_slot() -> None:
    layers = layers_of(declared("llama", "final", "embed", "layer3", "final_normed"), RELEASE, PLAIN)
    assert layers == Layers((0, 3, 8), {"final": 2, "embed": 0, "layer3": 1}, False, True)


def test_the_norm_has_the_slot_of_what_it_is_made_of() -> None:
    layers = layers_of(declared("llama", "layer3", "final_normed"), RELEASE, PLAIN)
    assert layers == Layers((3, 8), {"layer3": 0, "final": 1}, False, True)
    assert isinstance(layers, Layers)
    found = [slots for _, slots in passes(layers, 1, range(9))]
    assert found == [{"layer3": 0}, {"final": 0}]


@pytest.mark.parametrize("model_type", ["deepseek_v3", "kimi_k25"])
def test_embed_that_vllm_does_not_give_is_made_beside_the_forward(model_type: str) -> None:
    layers = layers_of(declared(model_type, "embed", "layer3", "final"), RELEASE, PLAIN)
    assert layers == Layers((3, 8), {"layer3": 0, "final": 1}, True, False)
    alone = layers_of(declared(model_type, "embed"), RELEASE, PLAIN)
    assert alone == Layers((8,), {}, True, False)


def test_a_scaled_embedding_is_not_made_beside_the_forward() -> None:
    found = layers_of(declared("deepseek_v3"), RELEASE, SimpleNamespace(embedding_multiplier=12.0))
    assert isinstance(found, list)
    assert [problem.where for problem in found] == ["embed"]
    assert "embedding_multiplier" in found[0].message


def test_what_it_cannot_give_is_told_with_the_reason() -> None:
    found = layers_of(declared("gemma3_text"), RELEASE, PLAIN)
    assert isinstance(found, list)
    assert any("final cannot be captured by vLLM" in problem.message for problem in found)


@pytest.mark.parametrize("width", [1, 2, 3, 8])
def test_passes_give_every_layer_once_at_one_width(width: int) -> None:
    layers = layers_of(declared("deepseek_v3"), RELEASE, PLAIN)
    assert isinstance(layers, Layers)
    made = passes(layers, width, layers.ids)
    found: dict[str, int] = {}
    for ids, slots in made:
        assert len(set(ids)) == width
        assert list(ids) == sorted(ids)
        assert not set(found) & set(slots)
        found |= {name: ids[slot] for name, slot in slots.items()}
    assert found == {name: layers.ids[slot] for name, slot in layers.slots.items()}
    assert len(made) == -(-8 // width)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"kv_lora_rank": 512, "rope_parameters": {"rope_type": "default"}}, True),
        ({"kv_lora_rank": 512, "rope_parameters": {"rope_type": "yarn"}}, False),
        ({"rope_parameters": {"rope_type": "default"}}, False),
    ],
)
def test_latent_attention_with_plain_positions_is_wrong_on_the_cpu(
    config: dict[str, Any], wrong: bool
) -> None:
    assert (rotation_problem(SimpleNamespace(**config)) is not None) == wrong


def installed(found: dict[str, str]) -> Callable[[str], str]:
    def version(name: str) -> str:
        if name not in found:
            raise PackageNotFoundError(name)
        return found[name]

    return version


@pytest.mark.parametrize(
    ("found", "message"),
    [({}, "expected the package vllm"), ({"vllm": "0.31.2"}, r"expected vLLM 0\.32 or newer, got 0\.31\.2")],
)
def test_a_plan_says_which_package_to_install(
    found: dict[str, str], message: str, tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_inside, "version", installed(found))
    settings = EngineSettings(name="vllm", model=str(tiny_folder("llama")))
    schema = Schema.declare(read_target(settings), ["layer1", "final"], "bfloat16")
    with pytest.raises(OpeningError, match=message) as caught:
        boundary_problems(settings, schema)
    assert "strata-hidden-states[vllm]" in str(caught.value.problems[0].repair)


@pytest.fixture
def plain_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_inside, "version", installed({"vllm": RELEASE, "torch": "2.13.0"}))
    monkeypatch.setattr(vllm_inside, "installed_package", lambda: None)


@pytest.mark.usefixtures("plain_install")
@pytest.mark.parametrize("model", ["gemma3", "gpt_neox"])
def test_only_what_is_asked_for_is_refused(
    model: str, tiny_folder: TinyFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """`final` of these is not known; their inner layers follow the rule of most, which is said."""
    settings = EngineSettings(name="vllm", model=str(tiny_folder(model)))
    target = read_target(settings)
    assert boundary_problems(settings, Schema.declare(target, ["layer1", "layer2"], "bfloat16")) == []
    assert f"{target.model_type} is not declared" in caplog.text
    refused = boundary_problems(settings, Schema.declare(target, ["layer1", "final"], "bfloat16"))
    assert any("final cannot be captured by vLLM" in problem.message for problem in refused)


@pytest.mark.usefixtures("plain_install")
@pytest.mark.parametrize(("model", "got"), [("gpt2", "wpe beside it"), ("gemma3", "Gemma3TextScaledWordEmb")])
def test_an_embedding_that_is_more_than_a_table_is_refused(
    model: str, got: str, tiny_folder: TinyFolder
) -> None:
    settings = EngineSettings(name="vllm", model=str(tiny_folder(model)))
    (problem,) = boundary_problems(
        settings, Schema.declare(read_target(settings), ["embed", "layer1"], "bfloat16")
    )
    assert problem.where == "embed"
    assert got in problem.message


@pytest.mark.parametrize("release", ["0.33.1", "0.40.0", "1.0.0"])
def test_a_release_that_is_not_declared_is_told(release: str) -> None:
    layers = layers_of(declared("llama", "layer3", "final"), release, PLAIN)
    assert isinstance(layers, Layers)
    assert [f"{release} is not declared" in one for one in layers.assumed] == [True]
    known = layers_of(declared("llama", "layer3", "final"), RELEASE, PLAIN)
    assert isinstance(known, Layers)
    assert known.assumed == ()


def test_a_plan_knows_the_version_the_length_and_the_layers(
    tiny_folder: TinyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"vllm": "0.32.0+cu129", "torch": "2.13.0"}
    monkeypatch.setattr(vllm_inside, "version", installed(found))
    settings = EngineSettings(name="vllm", model=str(tiny_folder("llama")))
    schema = Schema.declare(read_target(settings), ["layer1", "final"], "bfloat16")
    assert engine_version(settings) == "vllm 0.32.0, torch 2.13.0"
    assert boundary_problems(settings, schema) == []
    assert longest_sample(settings) == LONGEST - 1
    short = settings.model_copy(update={"vllm": VllmSettings(max_model_len=64)})
    assert longest_sample(short) == 63
