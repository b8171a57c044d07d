"""The configuration: where a setting comes from, and that all wrong ones are told at once."""

from pathlib import Path

import pytest

from datagen.config import RunConfig, load_config, setting_names
from datagen.engines.settings import EngineSettings
from datagen.errors import ConfigError

MINIMAL = """
[output]
root = "data"
dataset = "demo"

[prompts]
path = "prompts.jsonl"

[engine]
model = "data/models/small"

[tensors]
names = ["embed", "final"]
"""


def write(folder: Path, text: str = MINIMAL) -> Path:
    file = folder / "run.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path)
    assert load_config([], file, "strata run").output.root == "data"
    monkeypatch.setenv("STRATA_OUTPUT__ROOT", "from-environment")
    assert load_config([], file, "strata run").output.root == "from-environment"
    config = load_config(
        ["--output.root", "from-flag", "--tensors.names", "embed,layer3"], file, "strata run"
    )
    assert config.output.root == "from-flag"
    assert config.tensors.names == ("embed", "layer3")
    assert config.output.dataset == "demo"


def test_everything_can_be_given_without_a_file() -> None:
    flags = "--output.root data --output.dataset demo --prompts.path p.jsonl --engine.model m"
    config = load_config([*flags.split(), "--tensors.names", "embed"], None, "strata run")
    assert config.prompts.paths == ("p.jsonl",)


def test_all_wrong_settings_are_told_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path, MINIMAL.replace('path = "prompts.jsonl"', 'pth = "prompts.jsonl"\nmax_tokens = -1')
    )
    flags = ["--workers.count", "none", "--output.rot", "elsewhere"]
    with pytest.raises(ConfigError) as caught:
        load_config(flags, file, "strata run")
    told = str(caught.value)
    for where in ("prompts.path", "prompts.pth", "prompts.max_tokens", "workers.count", "--output.rot"):
        assert where in told
    assert "did you mean --output.root" in told
    assert caught.value.exit_code == 2


def test_words_that_cannot_be_read_are_each_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_WORKER__COUNT", "2")
    monkeypatch.setenv("STRATA_AUDIT", "{torn")
    monkeypatch.setenv("STRATA_PARTS__MAX_BYTES", "many")
    flags = ["stray", "--prompts.template_options", "torn", "--engine.model", "--tensors.names", "[1,"]
    with pytest.raises(ConfigError) as caught:
        load_config([*flags, "--output.root=", "--workers.count", "none"], write(tmp_path), "strata run")
    told = {problem.where: problem for problem in caught.value.problems}
    assert set(told) == {
        "STRATA_WORKER__COUNT",
        "STRATA_AUDIT",
        "parts.max_bytes",
        "stray",
        "--prompts.template_options",
        "--engine.model",
        "tensors.names",
        "output.root",
        "workers.count",
    }
    assert told["STRATA_WORKER__COUNT"].repair == "did you mean STRATA_WORKERS__COUNT"
    assert told["workers.count"].message == "expected a valid integer or 'auto', got 'none'"
    assert told["STRATA_AUDIT"].message == "expected a value that can be parsed, got '{torn'"


def test_without_settings_every_required_one_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([], None, "strata run")
    told = [problem.where for problem in caught.value.problems]
    assert told == ["output.root", "output.dataset", "prompts.path", "engine", "tensors.names"]
    assert "no --config FILE" in caught.value.headline


def test_tensors_are_listed_with_commas_in_the_environment_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TENSORS__NAMES", "embed, layer2,final")
    assert load_config([], write(tmp_path), "strata run").tensors.names == ("embed", "layer2", "final")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('dataset = "demo"', 'dataset = "demo.audit"'), "expected a name that does not end in .audit"),
        (('dataset = "demo"', 'dataset = "../demo"'), "expected letters, digits"),
        (('path = "prompts.jsonl"', 'path = ""'), "prompts.path: expected a file, folder, glob"),
        (('model = "data/models/small"', ""), "engine.model: expected a folder or a hub id"),
        (("[tensors]", '[tensors]\ndtype = "float32"'), "expected bfloat16 as engine.dtype, got float32"),
        (("[tensors]", "[plan]\nsamples = 3\n[tensors]"), "expected samples and tokens_per_sample together"),
    ],
    ids=["companion", "path", "no prompts", "no model", "dtype", "plan"],
)
def test_contradictions_are_named(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config([], write(tmp_path, MINIMAL.replace(*change)), "strata run")
    assert told in str(caught.value)


def told_of(file: Path, *flags: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load_config(flags, file, "strata run")
    wheres = [problem.where for problem in caught.value.problems]
    assert len(wheres) == len(set(wheres))
    return {problem.where: problem.message for problem in caught.value.problems}


def test_what_contradicts_is_told_beside_what_is_wrong(tmp_path: Path) -> None:
    file = write(tmp_path, MINIMAL.replace('model = "data/models/small"', 'name = "vllm"'))
    flags = {
        "engine.device_map": "auto",
        "engine.device": "cpu",
        "engine.threads": "2",
        "engine.attn_implementation": "sdpa",
        "engine.vllm.arguments": '{"quantization": "fp8", "revision": "x"}',
        "workers.gpus": "1.5",
        "generate.max_tokens": "99999",
        "generate.temperature": "0.001",
        "plan.samples": "3",
        "parts.max_samples": "none",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    told = told_of(file, *words)
    beside = {"engine.model", "engine.vllm.tensor_parallel", "plan"}
    assert set(told) == (set(flags) | beside) - {"plan.samples"}
    assert told["workers.gpus"].endswith("got 1.5")
    assert told["generate.temperature"] == "expected 0, or from 0.01 to 2, for the engine vllm, got 0.001"
    assert "quantization (change the model's files" in told["engine.vllm.arguments"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--engine.dtype", "float64"), {"engine.dtype"}),
        (
            ("--engine.name", "vlm", "--generate.max_tokens", "8", "--generate.temperature", "9"),
            {"engine.name"},
        ),
        (("--generate.temperature", "0", "--generate.n", "3"), {"generate.max_tokens", "generate.n"}),
        (("--prompts.path=", "--generate.max_tokens", "5000"), {"prompts.path", "generate.max_tokens"}),
        (("--workers.gpus", "many", "--workers.nodes", "2"), {"workers.gpus"}),
    ],
)
def test_a_wrong_setting_contradicts_nothing(tmp_path: Path, flags: tuple[str, ...], told: set[str]) -> None:
    assert set(told_of(write(tmp_path), *flags)) == told


def test_a_section_that_lacks_what_it_needs_is_held_against_the_others_all_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, MINIMAL.replace('path = "prompts.jsonl"', "max_tokens = 8"))
    assert set(told_of(file, "--generate.max_tokens", "8")) == {"prompts.path", "generate.max_tokens"}


def test_vllm_is_asked_for_the_length_that_the_samples_need(tmp_path: Path) -> None:
    def length(*flags: str) -> int | None:
        return load_config(flags, write(tmp_path), "strata run").engine.vllm.max_model_len

    assert length() is None
    assert length("--engine.name", "vllm", "--prompts.max_tokens", "300") == 301
    generate = ("--generate.max_tokens", "20")
    assert length("--engine.name", "vllm", "--prompts.max_tokens", "300", *generate) == 301
    assert length("--engine.name", "vllm", "--engine.vllm.max_model_len", "64") == 64


@pytest.mark.parametrize("text", ["[output", "\x00"], ids=["torn", "binary"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="expected a TOML file"):
        load_config([], write(tmp_path, text), "strata run")
    with pytest.raises(ConfigError, match="no such file"):
        load_config([], tmp_path / "missing.toml", "strata run")


@pytest.mark.parametrize("name", ["demo", "kimi-k2.5"])
def test_the_run_files_of_deploy_are_whole(name: str) -> None:
    file = Path(__file__).parents[2] / "deploy" / "runs" / f"{name}.toml"
    config = load_config([], file, "strata run")
    assert isinstance(config, RunConfig)
    assert config.output.dataset == name


def test_every_setting_has_a_flag() -> None:
    names = setting_names()
    for name in ("prompts.max_tokens", "engine.synthetic.seed", "parts.max_bytes", "ray.address"):
        assert name in names


def test_settings_on_a_cpu_can_be_read_again_from_what_they_say() -> None:
    """As a run's records hold them: `device_map` is there, and none."""
    settings = EngineSettings(model="data/models/small", device="cpu")
    assert EngineSettings.model_validate(settings.model_dump()) == settings
