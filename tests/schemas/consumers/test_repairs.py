"""Every problem says what to do: no error of a check, a resolver or a writer comes without its repair."""

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.consumers.declared import declared
from schemas.consumers.own import read_user_wiring
from schemas.consumers.resolution import Shape
from schemas.consumers.resolve import resolve_server, resolve_trainer
from schemas.consumers.serving import effective_flags
from schemas.consumers.versions import newest, oldest
from schemas.consumers.write import what_to_write
from schemas.contract import DraftContract, contract_problems, differences, read_contract
from schemas.problem import Problem
from tests.schemas.consumers.test_own import DECLARED, OUTRIGHT, SERVER, WRONG

ROOT = Path(__file__).parents[3]
JUDGES = [
    *(ROOT / "schemas" / name for name in ("boundary.py", "wiring.py", "check.py", "request.py")),
    *sorted((ROOT / "schemas/consumers").rglob("*.py")),
    *sorted((ROOT / "schemas/contract").rglob("*.py")),
    *(ROOT / "datagen/wiring" / name for name in ("checking.py", "inputs.py", "draft_files.py")),
    *(ROOT / "datagen/commands" / name for name in ("check.py", "wire.py")),
]
KEY = "eagle_aux_hidden_state_layer_ids"
MODELS = ("llama", "qwen3", "kimi_k25", "gpt_oss", "gemma3", "minimax_m2", "nobody_knows")
VERSIONS: dict[tuple[str, str], list[str | None]] = {}
for one in declared():
    VERSIONS.setdefault((one.kind, one.name), [None, "0.0.1", "999", "x"]).extend(
        [oldest(one.versions), newest(one.versions)]
    )
SERVERS = sorted(name for kind, name in VERSIONS if kind == "server")
TRAINERS = sorted(name for kind, name in VERSIONS if kind == "trainer")

odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.sampled_from([10**30, -(10**30), 1.5, "3", ""])
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)
ids = st.lists(st.integers(-2, 63), max_size=5) | odd
CONTRACT_KEYS = [
    "architectures",
    "model_type",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "use_aux_norm",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "use_sliding_window",
    "layer_types",
    "vocab_size",
    "draft_vocab_size",
    "hidden_size",
    "target_hidden_size",
    "num_hidden_layers",
    "tie_word_embeddings",
    "embed_requires_grad",
    "head_dim",
    "speculators_model_type",
    "transformer_layer_config",
    "num_aux_hidden_states",
]
values = odd | st.sampled_from([True, 1, 8, 1000, "LlamaForCausalLMEagle3", ["LlamaForCausalLMEagle3"]])
configs = st.builds(
    lambda top, nested, rest: {**rest, **top, **({"eagle_config": nested} if nested != {} else {})},
    st.dictionaries(st.just(KEY), ids, max_size=1),
    st.dictionaries(st.sampled_from([KEY, "layer_ids", "use_aux_hidden_state"]), ids, max_size=3) | odd,
    st.dictionaries(st.sampled_from(CONTRACT_KEYS), values, max_size=8),
)
often = settings(deadline=None, max_examples=60)
rarely = settings(deadline=None, max_examples=25)


def without_repair(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error" and not problem.repair]


@pytest.mark.parametrize("name", SERVERS)
@often
@given(config=configs, model=st.sampled_from(MODELS), n_layers=st.integers(1, 64), data=st.data())
def test_whatever_stands_in_a_drafts_config(
    name: str, config: dict[str, Any], model: str, n_layers: int, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(VERSIONS["server", name]))
    resolved = resolve_server(name, version, Shape(model_type=model, n_layers=n_layers), config)
    assert without_repair(resolved.problems) == []
    contract, found = read_contract(config)
    names = st.sampled_from(["fc.weight", "d2t", "lm_head.weight", "fc_norm.0.weight", "norm.weight", "x"])
    shapes = st.lists(st.integers(0, 1000), max_size=2)
    weights = data.draw(st.none() | st.dictionaries(names, shapes, max_size=6))
    window = data.draw(st.none() | st.just(512))
    server = name.partition("-")[0]
    judged = contract_problems(contract, server, version, weights, 1000, window)
    assert without_repair([*found, *judged, *differences(DraftContract(), contract)]) == []


@pytest.mark.parametrize("name", TRAINERS)
@often
@given(
    given_ids=st.none() | st.lists(st.integers(-2, 63), max_size=5),
    tensors=st.none()
    | st.lists(st.sampled_from(["embed", "layer3", "layer99", "final", "x", ""]), max_size=4),
    engine=st.none()
    | st.sampled_from(["sglang==0.5.23", "sglang", "vllm==0.33.0", "nobody==1", "sglang==x"]),
    model=st.sampled_from(MODELS),
    n_layers=st.integers(1, 64),
    data=st.data(),
)
def test_whatever_a_trainer_is_given(
    name: str,
    given_ids: list[int] | None,
    tensors: list[str] | None,
    engine: str | None,
    model: str,
    n_layers: int,
    data: st.DataObject,
) -> None:
    version = data.draw(st.sampled_from(VERSIONS["trainer", name]))
    shape = Shape(model_type=model, n_layers=n_layers)
    resolved = resolve_trainer(name, version, shape, tensors, given_ids, engine)
    assert without_repair(resolved.problems) == []
    assert resolved.wiring is not None or resolved.problems


@pytest.mark.parametrize("name", [*SERVERS, *TRAINERS, "nobody"])
@rarely
@given(
    boundaries=st.lists(st.integers(-1, 66), max_size=5) | st.just([3] * 70),
    model=st.sampled_from(MODELS),
    version=st.sampled_from([None, "0.4.0", "0.5.23", "0.33.0", "x"]),
    n_layers=st.integers(1, 64),
)
def test_whatever_is_to_be_written(
    name: str, boundaries: list[int], model: str, version: str | None, n_layers: int
) -> None:
    written = what_to_write(name, version, Shape(model_type=model, n_layers=n_layers), boundaries)
    assert without_repair(written.problems) == []


@pytest.mark.parametrize("text", [text for text, _ in WRONG.values()], ids=WRONG)
def test_a_wrong_wiring_file(text: str) -> None:
    problems = read_user_wiring(text, Shape(model_type="llama", n_layers=61)).problems
    assert problems
    assert without_repair(problems) == []


@often
@given(
    whole=st.sampled_from([OUTRIGHT, DECLARED, SERVER]),
    at=st.integers(0, 400),
    cut=st.integers(0, 40),
    text=st.text(max_size=10),
)
def test_a_damaged_wiring_file(whole: str, at: int, cut: int, text: str) -> None:
    damaged = whole[:at] + text + whole[at + cut :]
    assert without_repair(read_user_wiring(damaged, Shape(model_type="llama", n_layers=61)).problems) == []


@often
@given(
    words=st.lists(
        st.sampled_from(
            [
                "--speculative-algorithm",
                "EAGLE3",
                "eagle",
                "--speculative-num-steps",
                "--speculative-eagle-topk",
                "1",
                "4",
                "x",
                "--speculative-num-draft-tokens",
                "--speculative-config",
                "{}",
                "'{\"method\":1}'",
                "--spec-tokens",
                "--page-size",
                "--speculative-adaptive",
                "--attention-backend",
                "trtllm_mha",
                "--speculative-what",
                "--speculative",
                "'",
                "--speculative-config.method",
            ]
        ),
        max_size=10,
    ),
    server=st.sampled_from(["sglang", "vllm"]),
    version=st.sampled_from([None, "0.4.5", "0.5.3", "0.5.23", "0.0.1", "0.33.0", "x"]),
)
def test_whatever_starts_a_server(words: list[str], server: str, version: str | None) -> None:
    assert without_repair(effective_flags(server, version, " ".join(words)).problems) == []


def test_a_command_line_that_is_too_long() -> None:
    assert without_repair(effective_flags("sglang", None, "x" * 200_000).problems) == []


@pytest.mark.parametrize("file", JUDGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_error_is_written_down_without_a_repair(file: Path) -> None:
    """What no generated input reaches is read in the source: `Problem(...)` says `repair=`, or is a note."""
    calls = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem"
    ]
    for call in calls:
        said = {word.arg: word.value for word in call.keywords}
        severity = said.get("severity")
        is_note = isinstance(severity, ast.Constant) and severity.value == "note"
        assert is_note or "repair" in said, f"{file.name}:{call.lineno}"
