"""Serving flags as released servers read them: what runs, what is set over what was written, what stops."""

import json
import shlex
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.consumers.serving import ServingFlags, effective_flags
from schemas.consumers.serving.command_line import MAX_CHARACTERS
from schemas.consumers.serving.rules import rules
from schemas.consumers.versions import in_range

EAGLE3 = "--speculative-algorithm EAGLE3"


def sglang(
    steps: int | None = None, topk: int | None = None, tokens: int | None = None, more: str = "", **known: Any
) -> ServingFlags:
    """Return what SGLang makes of the three numbers."""
    version = known.pop("version", "0.5.23")
    numbers = {"num-steps": steps, "eagle-topk": topk, "num-draft-tokens": tokens}
    written = [f"--speculative-{name} {value}" for name, value in numbers.items() if value is not None]
    return effective_flags("sglang", version, " ".join([EAGLE3, *written, more]), **known)


def numbers(flags: ServingFlags) -> tuple[int | None, int | None, int | None]:
    """Return the three numbers that run."""
    return flags.steps, flags.topk, flags.draft_tokens


def kinds(flags: ServingFlags, severity: str = "error") -> list[str]:
    """Return the kinds of the problems of one severity."""
    return [one.kind for one in flags.problems if one.severity == severity]


def test_the_incident_one_step_gives_two_draft_tokens_whatever_is_written() -> None:
    flags = sglang(1, 1, 16)
    assert numbers(flags) == (1, 1, 2)
    assert (flags.proposed, flags.verified, flags.longest) == (1, 2, 2)
    (problem,) = flags.problems
    assert problem.where == "--speculative-num-draft-tokens"
    assert problem.message.startswith("expected 16 draft tokens, runs 2: with --speculative-eagle-topk 1")
    assert "steps + 1 = 2" in problem.message
    assert problem.repair is not None
    assert (
        "--speculative-num-steps 15 --speculative-eagle-topk 1 --speculative-num-draft-tokens 16"
        in problem.repair
    )


def test_the_incident_fifteen_steps_give_sixteen() -> None:
    flags = sglang(15, 1, 16)
    assert (numbers(flags), flags.problems) == ((15, 1, 16), ())
    assert str(flags) == (
        "EAGLE3: a chain, 15 steps, 15 tokens proposed and 16 verified a step, at most 16 gained"
    )


def test_before_chains_were_adjusted_the_tree_ran_out_of_candidates() -> None:
    assert kinds(sglang(1, 1, 16, version="0.4.5")) == ["fails"]
    assert numbers(sglang(1, 1, 16, version="0.4.6.post5")) == (1, 1, 2)


def test_a_chain_needs_no_number_of_draft_tokens() -> None:
    flags = sglang(3, 1)
    assert (numbers(flags), flags.problems) == ((3, 1, 4), ())


@pytest.mark.parametrize(
    ("version", "known", "chosen"),
    [
        ("0.4.5", {}, (5, 4, 8)),
        ("0.4.6.post5", {"architecture": "DeepseekV3ForCausalLM"}, (5, 4, 8)),
        ("0.4.8", {"architecture": "DeepseekV3ForCausalLM"}, (3, 1, 4)),
        ("0.4.8", {"architecture": "GptOssForCausalLM"}, (5, 4, 8)),
        ("0.5.1", {"architecture": "GptOssForCausalLM"}, (3, 1, 4)),
        ("0.5.8", {"architecture": "Qwen3ForCausalLM"}, (5, 4, 8)),
        ("0.5.9", {"architecture": "Qwen3ForCausalLM"}, (3, 1, 4)),
        ("0.5.23", {"architecture": "LlamaForCausalLM"}, (5, 4, 8)),
        ("0.5.23", {"model_type": "llama"}, (5, 4, 8)),
        ("0.5.23", {"model_type": "kimi_k25"}, (3, 1, 4)),
        ("0.5.23", {}, (None, None, None)),
    ],
    ids=str,
)
def test_numbers_chosen_for_you(version: str, known: dict[str, Any], chosen: tuple[int | None, ...]) -> None:
    flags = sglang(version=version, **known)
    assert numbers(flags) == chosen
    assert kinds(flags) == []
    assert kinds(flags, "note")[0] == "chosen"


@pytest.mark.parametrize(
    ("flags", "kind", "says"),
    [
        (sglang(tokens=16), "refused", "AssertionError"),
        (sglang(topk=1), "refused", "AssertionError"),
        (sglang(3), "refused", "TypeError"),
        (sglang(3, version="0.4.9"), "refused", "nothing fills it in"),
        (sglang(3, 4), "refused", "nothing fills it in"),
        (sglang(0, 1), "refused", "at least 1"),
        (sglang(3, 4, 64), "fails", "at most 37"),
        (
            sglang(3, 4, 16, "--page-size 64 --attention-backend flashmla"),
            "refused",
            "flashinfer, fa3, triton",
        ),
        (sglang(3, 4, 16, "--page-size 64 --attention-backend triton", version="0.5.12"), "refused", "fa3"),
        (
            sglang(3, 4, 16, "--page-size 64 --attention-backend fa3", version="0.5.5"),
            "refused",
            "flashinfer",
        ),
        (sglang(3, 4, 16, "--decode-attention-backend trtllm_mha"), "refused", "trtllm_mha"),
        (sglang(4, 1, 5, "--speculative-adaptive"), "refused", "0, 1, 3, 5, 7"),
        (sglang(3, 2, 4, "--speculative-adaptive"), "overridden", "turned off"),
        (sglang(3, 4, 16, "--page-size 16", version="0.4.8"), "overridden", "chains"),
        (sglang(3, 1, 4, "--speculative-draft-window-size 9", version="0.5.11"), "refused", ">=0.5.12 has"),
        (sglang(3, 1, 4, "--speculative-num --speculative-d"), "refused", "the beginning of"),
        (effective_flags("sglang", "0.5.23", "--speculative-num-steps 3"), "idle", "no effect"),
        (effective_flags("sglang", "0.5.23", "--speculative-algorithm EAGLE4"), "refused", "EAGLE3"),
        (effective_flags("sglang", "0.5.9", "--speculative-algorithm eagle3"), "refused", "capital"),
        (
            effective_flags("sglang", "0.5.23", f"{EAGLE3} --speculative-num-steps three"),
            "refused",
            "'three'",
        ),
        (effective_flags("sglang", "0.5.23", "--x 'unclosed"), "quotes", "quotation"),
        (effective_flags("sglang", "0.4.4", EAGLE3), "version", "0.4.5 or later"),
        (effective_flags("sglang", "old", EAGLE3), "version", "expected a version"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_stops_or_is_set_over(flags: ServingFlags, kind: str, says: str) -> None:
    problems = [one for one in flags.problems if one.kind == kind and one.severity == "error"]
    assert any(says in one.message for one in problems), flags.problems
    if kind in ("refused", "fails"):
        assert numbers(flags) == (None, None, None)
        assert flags.equivalent is None


def test_pages_made_older_sglang_draft_chains() -> None:
    assert numbers(sglang(3, 4, 16, "--page-size 16", version="0.4.8")) == (3, 1, 4)
    assert numbers(sglang(3, 4, None, "--page-size 16", version="0.4.8")) == (3, 1, 4)


def test_steps_beyond_what_a_tree_keeps_are_noted() -> None:
    flags = sglang(8, 4, 6)
    assert (numbers(flags), kinds(flags)) == ((8, 4, 6), [])
    assert any("for nothing" in one.message for one in flags.problems)


def test_adaptive_begins_at_three_steps() -> None:
    assert numbers(sglang(more="--speculative-adaptive")) == (3, 1, 4)


def test_words_of_other_matters_are_passed_over_and_strange_ones_noted() -> None:
    line = f"python -m sglang.launch_server --model-path m --tp 8 {EAGLE3} --speculative-num-steps=3 "
    line += (
        "--speculative-eagle-topk=1 --speculative-draft-model-path d --speculative-warp 9 --mem-fraction .8"
    )
    flags = effective_flags("sglang", "0.5.23", line)
    assert (numbers(flags), flags.draft_model) == ((3, 1, 4), "d")
    assert [(one.where, one.kind) for one in flags.problems] == [("--speculative-warp", "unknown_flag")]
    assert effective_flags("sglang", "0.5.23", shlex.split(line)) == flags


def test_a_beginning_is_completed_and_the_last_of_two_counts() -> None:
    flags = effective_flags(
        "sglang",
        "0.5.23",
        f"{EAGLE3} --speculative-num-s 2 --speculative-num-steps 3 --speculative-eagle-topk 1",
    )
    assert numbers(flags) == (3, 1, 4)
    assert kinds(flags, "note") == ["note", "note"]


def test_lower_case_nextn_and_other_algorithms() -> None:
    assert effective_flags("sglang", "0.5.12", "--speculative-algorithm eagle3").algorithm == "EAGLE3"
    assert effective_flags("sglang", "0.5.23", "--speculative-algorithm NEXTN").algorithm == "EAGLE"
    flags = effective_flags("sglang", "0.5.23", "--speculative-algorithm NGRAM --speculative-num-steps 3")
    assert (flags.algorithm, numbers(flags), kinds(flags)) == ("NGRAM", (None, None, None), [])


def vllm(version: str = "0.33.0", more: str = "", **config: Any) -> ServingFlags:
    """Return what vLLM makes of a speculative config."""
    written = f"--speculative-config {shlex.quote(json.dumps(config))} " if config else ""
    return effective_flags("vllm", version, "vllm serve target " + written + more)


def test_vllm_drafts_a_chain() -> None:
    flags = vllm(method="eagle3", model="my/draft", num_speculative_tokens=3)
    assert (numbers(flags), flags.problems) == ((3, 1, 4), ())
    assert (flags.proposed, flags.verified) == (3, 4)
    assert flags.equivalent == (
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path my/draft --speculative-num-steps 3 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    )


@pytest.mark.parametrize(
    "line",
    [
        "--speculative_config.method eagle3 --speculative-config.num-speculative-tokens 3",
        "--spec-method eagle3 --spec-tokens 3",
        """-sc '{"method": "eagle3", "num-speculative-tokens": 3}'""",
        """--speculative-config='{"method": "eagle3"}' --spec-tokens=3""",
    ],
)
def test_vllm_takes_several_spellings(line: str) -> None:
    flags = vllm(more=line)
    assert (flags.algorithm, numbers(flags), flags.problems) == ("eagle3", (3, 1, 4), ())


@pytest.mark.parametrize(
    ("flags", "kind", "says"),
    [
        (vllm(method="eagle3"), "refused", "got none"),
        (vllm(method="eagle3", num_speculative_tokens=0), "refused", "at least 1"),
        (vllm(method="eagle3", num_speculative_tokens=True), "refused", "at least 1"),
        (vllm(method="eagle3", num_speculative_tokens=3, topk=4), "refused", "no key topk"),
        (
            vllm("0.15.0", method="eagle3", num_speculative_tokens=3, parallel_drafting=True),
            "refused",
            ">=0.16",
        ),
        (
            vllm("0.22.0", method="eagle3", num_speculative_tokens=3, speculative_token_tree="x"),
            "refused",
            "<0.22",
        ),
        (vllm(model="my/draft", num_speculative_tokens=3), "wrong_method", "draft_model"),
        (vllm("0.10.1", model="my/eagle3-draft", num_speculative_tokens=3), "wrong_method", "takes eagle"),
        (vllm(more="--spec-tokens 4", method="eagle3", num_speculative_tokens=3), "refused", "exclude"),
        (vllm("0.20.0", more="--spec-method eagle3"), "refused", "no --spec-method"),
        (vllm(more="--speculative-config {"), "refused", "JSON object"),
        (vllm(more="--speculative-config [1]"), "refused", "got list"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_vllm_refuses(flags: ServingFlags, kind: str, says: str) -> None:
    assert any(one.kind == kind and says in one.message for one in flags.problems), flags.problems


def test_vllm_takes_the_method_from_the_path() -> None:
    flags = vllm(model="my/EAGLE3-draft", num_speculative_tokens=3)
    assert (flags.algorithm, kinds(flags), kinds(flags, "note")) == ("eagle3", [], ["note"])


def test_no_flags_draft_nothing() -> None:
    for server in ("sglang", "vllm"):
        flags = effective_flags(server, None, "--tp 8")
        assert (flags.algorithm, kinds(flags), str(flags)) == (None, [], "nothing is drafted")


def test_an_unknown_server_and_a_long_line() -> None:
    assert kinds(effective_flags("tgi", "1.0", EAGLE3), "note") == ["unknown_server"]
    assert kinds(effective_flags("sglang", "0.5.23", "'" * 10_000_000)) == ["too_long"]
    assert kinds(effective_flags("vllm", "0.33.0", ["x" * MAX_CHARACTERS])) == ["too_long"]


def test_rules_are_whole() -> None:
    for version in ("0.4.5", "0.5.1", "0.5.8", "0.5.9", "0.5.23"):
        assert rules().sglang.chosen(version, "Unheard", None) is not None
    ranges = [*rules().sglang.flags.values(), *rules().vllm.keys.values(), *rules().vllm.flags.values()]
    assert all(isinstance(in_range("0.5", one), bool) for one in ranges)


VERSIONS = st.sampled_from(["0.4.5", "0.4.9", "0.5.2", "0.5.12", "0.5.23", "0.9"])
COUNTS = st.none() | st.integers(1, 40)


@settings(max_examples=200, deadline=None)
@given(steps=st.integers(1, 40), topk=st.integers(1, 8), tokens=COUNTS, version=VERSIONS)
def test_what_runs_is_sound(steps: int, topk: int, tokens: int | None, version: str) -> None:
    flags = sglang(steps, topk, tokens, version=version)
    if flags.steps is None:
        assert kinds(flags)
        return
    assert flags.steps == steps
    assert flags.draft_tokens is not None
    assert flags.draft_tokens - 1 <= topk + (steps - 1) * topk**2
    if topk == 1 and version != "0.4.5":
        assert flags.draft_tokens == steps + 1
    if tokens is not None and flags.draft_tokens != tokens:
        assert "overridden" in kinds(flags)


@settings(max_examples=100, deadline=None)
@given(steps=st.integers(1, 40))
def test_equivalents_lead_back(steps: int) -> None:
    there = sglang(steps, 1, steps + 1, "--speculative-draft-model-path d")
    assert there.equivalent is not None
    back = effective_flags("vllm", "0.33.0", there.equivalent)
    assert (numbers(back), back.draft_model) == (numbers(there), "d")
    assert back.equivalent is not None
    assert numbers(effective_flags("sglang", "0.5.23", back.equivalent)) == numbers(there)


WORDS = st.sampled_from(
    [
        *rules().sglang.flags,
        *rules().vllm.flags,
        "--speculative-config.method",
        "--page-size",
        "EAGLE3",
        "1",
        "{}",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    args=st.text(max_size=60) | st.lists(WORDS | st.text(max_size=12), max_size=10),
    server=st.sampled_from(["sglang", "vllm", "SGLang ", "x"]),
    version=VERSIONS | st.none() | st.text(max_size=6),
)
def test_no_line_is_too_strange(args: str | list[str], server: str, version: str | None) -> None:
    flags = effective_flags(server, version, args)
    assert ServingFlags.model_validate(flags.model_dump()) == flags
    assert all(len(str(one)) < 2000 for one in flags.problems)


@settings(max_examples=100, deadline=None)
@given(
    config=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*rules().vllm.keys]) | st.text(max_size=4), inner, max_size=5)
        ),
        max_leaves=8,
    )
)
def test_no_json_is_too_strange(config: object) -> None:
    text = json.dumps(config)
    assume(len(text) < MAX_CHARACTERS)
    flags = effective_flags("vllm", "0.33.0", ["--speculative-config", text])
    assert all(len(str(one)) < 2000 for one in flags.problems)
