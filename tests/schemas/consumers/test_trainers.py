"""What trainers take: by name where they read names, by place where they read a list."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.consumers.declared import at_version
from schemas.consumers.resolve import Shape, names, resolve_trainer
from schemas.wiring import target_problems

KIMI = Shape(model_type="kimi_k25", n_layers=61)
LLAMA = Shape(model_type="llama", n_layers=32)
KEY = "eagle_aux_hidden_state_layer_ids"


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(names("trainer")),
    version=st.sampled_from([None, "0.2.0", "0.3.0", "0.4.0", "0.9.0", "nonsense"]),
    model=st.sampled_from(["llama", "kimi_k25", "gpt_oss", "gemma3", "unheard_of"]),
    n_layers=st.integers(1, 100),
    tensors=st.none()
    | st.lists(st.sampled_from(["embed", "layer3", "layer99", "final", "nonsense", ""]), max_size=5),
    ids=st.none() | st.lists(st.integers() | st.integers(-3, 64), max_size=5),
    engine=st.none() | st.sampled_from(["sglang==0.5.23", "sglang", "nonsense==1", "sglang==x"]),
)
def test_nothing_given_raises(
    name: str,
    version: str | None,
    model: str,
    n_layers: int,
    tensors: list[str] | None,
    ids: list[int] | None,
    engine: str | None,
) -> None:
    resolution = resolve_trainer(
        name, version, Shape(model_type=model, n_layers=n_layers), tensors, ids, engine
    )
    assert resolution.wiring is not None or any(p.severity == "error" for p in resolution.problems)


@pytest.mark.parametrize("version", ["0.3.0", "0.4.0", "0.9.0"])
def test_a_list_reader_takes_the_last_as_the_target(version: str) -> None:
    resolution = resolve_trainer("speculators", version, KIMI, ["embed", "layer3", "layer31", "layer59"])
    assert resolution.wiring is not None
    assert resolution.wiring.fc == ("embed", "layer3", "layer31")
    (problem,) = target_problems(resolution.wiring)
    assert "the state after layer 59" in problem.message
    assert any("names and order are not checked" in step for step in resolution.steps)


def test_the_target_must_be_normed_before_pr_313_and_must_not_be_since() -> None:
    right = {"0.3.0": "final_normed", "0.4.0": "final", "0.9.0": "final"}
    for version, target in right.items():
        for given_ in ("final", "final_normed"):
            resolution = resolve_trainer(
                "speculators", version, KIMI, ["layer3", "layer31", "layer59", given_]
            )
            assert resolution.wiring is not None
            assert (not list(target_problems(resolution.wiring))) == (given_ == target)


def test_a_vllm_dump_is_read_as_if_it_were_normed() -> None:
    resolution = resolve_trainer("modelopt-vllm", None, KIMI)
    assert resolution.wiring is not None
    (problem,) = target_problems(resolution.wiring)
    assert "logits of states that were never normed" in problem.message


def test_the_wrong_count_negative_and_double_ids() -> None:
    for name, ids in (
        ("specforge", [2, 30]),
        ("specforge", [-1, 2, 30]),
        ("automodel", [2, 2, 30]),
        ("speculators", [3, 3, 59]),
        ("eagle", [2, 30, 58]),
        ("deepspec", [30, 2, 58]),
        ("deepspec", [-2, 2, 58]),
    ):
        assert resolve_trainer(name, None, KIMI, ids=ids).wiring is None, name


def test_a_trainer_that_captures_with_an_engine_says_which_is_assumed() -> None:
    assumed = resolve_trainer("specforge", "0.2.0", KIMI)
    assert "SpecForge is assumed to capture with SGLang 0.5.14, its own release" in assumed.assumptions
    named = resolve_trainer("specforge", "0.2.0", KIMI, ids=[3, 31, 59], engine="sglang==0.5.12")
    assert named.assumptions == ()
    assert named.wiring is not None
    assert named.wiring.boundaries == (4, 32, 60)


def test_what_was_read_at_one_place_only_is_assumed_aloud() -> None:
    for version in (None, "1.0"):
        (assumed,) = resolve_trainer("torchspec-hf", version, KIMI).assumptions
        assert "git 6f21829c: it is assumed to be that" in assumed


def test_what_transformers_cannot_hand_out() -> None:
    resolution = resolve_trainer("modelopt-hf", None, KIMI, ids=[2, 30, 60])
    (problem,) = resolution.problems
    assert "the last of transformers' hidden states is normed already" in problem.message


def test_a_name_that_may_be_several_must_be_told() -> None:
    for name in ("torchspec", "modelopt"):
        resolution = resolve_trainer(name, None, KIMI)
        assert resolution.wiring is None
        assert resolution.problems[-1].kind == "undecided"


def test_a_shallow_target_is_refused_not_guessed() -> None:
    for name in names("trainer"):
        if at_version(name, None).consumer.fc:
            continue  # takes the last state alone, which every target has
        resolution = resolve_trainer(name, None, Shape(model_type="llama", n_layers=2))
        assert resolution.wiring is None, name


@pytest.mark.parametrize(
    ("name", "version", "ids", "n_layers"),
    [
        ("speculators", "0.5.0", [3, 3], 61),
        ("speculators", "0.5.0", None, 6),
        ("speculators", "0.9.0", None, 6),
        ("specforge", "0.2.0", [1, 2, 2, 3], 61),
    ],
)
def test_ids_that_fall_together_are_refused(
    name: str, version: str, ids: list[int] | None, n_layers: int
) -> None:
    resolution = resolve_trainer(name, version, Shape(model_type="llama", n_layers=n_layers), ids=ids)
    assert resolution.wiring is None
    assert any(
        "different boundaries" in p.message or "each id once" in p.message for p in resolution.problems
    )


@pytest.mark.parametrize(
    ("config", "given", "boundaries"),
    [
        ({}, None, (2, 16, 29)),
        ({"eagle_config": {KEY: [3, 14, 27]}}, None, (4, 15, 28)),
        ({"eagle_config": {KEY: [3, 14, 27]}}, (1, 2, 3), (2, 3, 4)),
        ({"eagle_config": None}, None, (2, 16, 29)),
        ({"eagle_config": {KEY: None}}, None, (2, 16, 29)),
    ],
)
def test_specforge_takes_its_ids_from_the_drafts_config(
    config: dict[str, object], given: tuple[int, ...] | None, boundaries: tuple[int, ...]
) -> None:
    """resolve_eagle_capture_layers of release 0.2.0: the run's ids, else the config's, else its default."""
    resolved = resolve_trainer("specforge", "0.2.0", LLAMA, ids=given, draft_config=config)
    assert resolved.problems == ()
    assert resolved.wiring is not None
    assert resolved.wiring.boundaries == boundaries


@pytest.mark.parametrize(
    ("config", "where", "said"),
    [
        ({KEY: [3, 14, 27]}, KEY, "SpecForge does not read it, says nothing, and takes its default"),
        ({"eagle_config": {KEY: []}}, f"eagle_config.{KEY}", "a list of 1 to"),
        ({"eagle_config": {KEY: "3"}}, f"eagle_config.{KEY}", "SpecForge fails on it"),
        ({"eagle_config": {KEY: [1, 2]}}, "ids", "expected 3 boundaries for SpecForge, got 2"),
        ({"eagle_config": {KEY: [-1, 2, 3]}}, "ids", "expected ids from 0 up"),
        ({"eagle_config": [1]}, "eagle_config", "SpecForge fails on it at start"),
    ],
)
def test_what_specforge_does_not_read_or_refuses_is_told(
    config: dict[str, object], where: str, said: str
) -> None:
    problems = resolve_trainer("specforge", "0.2.0", LLAMA, draft_config=config).problems
    assert [problem.where for problem in problems if said in problem.message] == [where]
    assert all(problem.repair for problem in problems)


def test_a_trainer_that_does_not_look_into_the_drafts_config_is_not_told_of_it() -> None:
    config = {KEY: [3, 14, 27], "eagle_config": {KEY: [3, 14, 27]}}
    for name in ("speculators", "torchspec-vllm", "automodel", "eagle"):
        plain = resolve_trainer(name, None, LLAMA)
        assert resolve_trainer(name, None, LLAMA, draft_config=config) == plain


def test_the_engine_of_a_trainer_decides_what_its_ids_mean() -> None:
    for engine, boundaries in (("sglang==0.5.12", (3, 31, 59)), ("sglang==0.5.13", (2, 30, 58))):
        resolved = resolve_trainer("specforge", "0.2.0", KIMI, ids=(2, 30, 58), engine=engine)
        assert resolved.wiring is not None
        assert resolved.wiring.boundaries == boundaries
    for name, engine, said in (
        ("specforge", "vllm-v1==0.33.0", "expected sglang at a version"),
        ("specforge", "sglang==x", "expected sglang at a version"),
        ("speculators", "vllm==0.33.0", "expected none for speculators"),
    ):
        (problem,) = resolve_trainer(name, None, KIMI, engine=engine).problems
        assert (problem.where, said in problem.message, bool(problem.repair)) == ("engine", True, True)
    # Of those that it may be, only the one that captures with SGLang is told.
    undecided = resolve_trainer("torchspec", None, KIMI, ids=(2, 30, 58), engine="sglang==0.5.12")
    assert [problem.kind for problem in undecided.problems] == ["undecided"]


@pytest.mark.parametrize("version", ["0.5.0", "0.9.0"])
def test_speculators_is_never_fed_its_target_as_input(version: str) -> None:
    resolution = resolve_trainer("speculators", version, KIMI, ids=[3, 31, 61])
    assert resolution.wiring is None
    (problem,) = resolution.problems
    assert "its slot is the target" in problem.message


def test_a_tensor_of_a_list_that_the_target_lacks_is_told_by_role_and_slot() -> None:
    listed = ("embed", "layer99", "layer031", "final")
    problems = resolve_trainer("speculators", "0.4.0", KIMI, tensors=listed).problems
    assert [(problem.where, problem.role, problem.slot) for problem in problems] == [
        ("fc[1]", "fc", 1),
        ("fc[2]", "fc", 2),
    ]
    (target,) = resolve_trainer("speculators", "0.4.0", KIMI, tensors=("embed", "layer61")).problems
    assert (target.where, bool(target.repair)) == ("target", True)
