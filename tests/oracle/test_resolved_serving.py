"""What we say of serving flags, and of what draft classes read and load, against the servers' own code."""

import itertools
from typing import NamedTuple

import pytest

from schemas.consumers.serving import ServingFlags, effective_flags
from schemas.consumers.versions import in_range
from schemas.contract.draft import DraftContract
from schemas.contract.servers import NEVER, Reading, meanings, reading_of
from tests.oracle.drafts_code import draft_model, flags_read, sglang_loads, vllm_passes_over
from tests.oracle.sglang_flags import Flags, effective
from tests.oracle.wheels import RELEASES, is_cached

ARCHITECTURES = [
    "LlamaForCausalLM",
    "Qwen3ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GptOssForCausalLM",
    "BailingMoeForCausalLM",
    "Grok1ForCausalLM",
]
STEPS, TOPK, DRAFT_TOKENS = (None, 1, 3, 5), (None, 1, 2, 8), (None, 2, 4, 16, 64)


class DraftClass(NamedTuple):
    """A server's class for drafts, and the file that holds it."""

    server: str
    file: str
    name: str


CLASSES = [
    DraftClass("sglang", "llama_eagle3", "LlamaForCausalLMEagle3"),
    DraftClass("sglang", "kimi_k25_eagle3", "Eagle3DeepseekV2ForCausalLM"),
    DraftClass("vllm", "llama_eagle3", "Eagle3LlamaForCausalLM"),
    DraftClass("vllm", "deepseek_eagle3", "Eagle3DeepseekV2ForCausalLM"),
    DraftClass("vllm", "qwen3_eagle3", "Eagle3Qwen3ForCausalLM"),
]
READ = [
    (one, version)
    for one in CLASSES
    for version in RELEASES[one.server]
    if is_cached(one.server, version) and draft_model(one.server, version, one.file).is_file()
]


@pytest.mark.parametrize("version", RELEASES["sglang"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sglang_runs_the_flags_that_we_say(version: str, architecture: str) -> None:
    for numbers in itertools.product(STEPS, TOPK, DRAFT_TOKENS):
        given = Flags(*numbers)
        ours = _ours(version, given, architecture)
        told = f"{given}: ours {ours}, {[str(p) for p in ours.problems]}"
        refused = any(problem.kind == "refused" for problem in ours.problems)
        try:
            theirs = effective(version, given, architecture)
        except (AssertionError, TypeError, ValueError):
            assert refused, told
            continue
        if any(problem.kind == "fails" for problem in ours.problems):
            assert _is_overfull(theirs), told  # it starts, and dies at the first request
        elif None in (theirs.steps, theirs.topk, theirs.draft_tokens):
            assert refused, told  # nothing fills it in, and their start counts with it later on
        else:
            assert (ours.steps, ours.topk, ours.draft_tokens) == (
                theirs.steps,
                theirs.topk,
                theirs.draft_tokens,
            ), f"{told}, theirs {theirs}"


@pytest.mark.parametrize(("one", "version"), READ, ids=str)
def test_a_class_reads_the_norm_flags_that_we_say(one: DraftClass, version: str) -> None:
    reading = _reading(one, version)
    known = {meaning.name for meaning in meanings()}
    ours = set()
    for flag in known:
        reader = reading.reader_of(flag)
        if reader is not None and reading.holds(reader.plain):
            ours.add(flag)
    assert ours == flags_read(one.server, version, one.file) & known


# Before 0.4.9 it loads through the target's class, which is read and not run.
@pytest.mark.parametrize("version", [v for v in RELEASES["sglang"] if v != "0.4.8"])
def test_sglang_loads_the_weights_that_we_say(version: str) -> None:
    reading = _reading(CLASSES[0], version)
    first = "layers.0" if in_range(version, ">=0.5.12") else "midlayer"
    parts = [
        "hidden_norm",
        "input_layernorm",
        "post_attention_layernorm",
        "mlp.down_proj",
        "self_attn.o_proj",
        "self_attn.q_norm",
        "self_attn.k_norm",
    ]
    plain = [f"{{}}.{part}.weight" for part in parts]
    # A Llama-like draft has no norms of heads: they are offered, and nothing may take them.
    parameters = [f"model.{name.format(first)}" for name in plain if "_norm." not in name or "hidden" in name]
    parameters += ["model.fc.weight", "model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"]
    offered = [name.format(layer) for name in plain for layer in ("midlayer", "layers.0")]
    offered += ["fc.weight", "norm.weight", "lm_head.weight", "embed_tokens.weight", "verifier_norm.weight"]
    for name in (*offered, *(f"model.{name}" for name in offered if not name.startswith("lm_head"))):
        filled = bool(sglang_loads(version, parameters, [name]))
        assert reading.loads(name) is filled, name


@pytest.mark.parametrize("version", RELEASES["vllm"])
def test_vllm_drops_input_norm_in_silence_from_when_we_say(version: str) -> None:
    reading = _reading(CLASSES[2], version)
    passed = "input_norm." in vllm_passes_over(version)
    assert (reading.fate_of("input_norm.weight") == "skipped without a word") is passed
    assert reading.fate_of("nobody.weight") == "refused at start"


def _ours(version: str, given: Flags, architecture: str) -> ServingFlags:
    words = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "draft"]
    words += ["--page-size", "1", "--attention-backend", "flashinfer"]
    names = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    for name, number in zip(names, (given.steps, given.topk, given.draft_tokens), strict=True):
        words += [] if number is None else [name, str(number)]
    return effective_flags("sglang", version, words, architecture=architecture)


def _is_overfull(flags: Flags) -> bool:
    """Say whether more draft tokens are asked for than the tree has candidates."""
    if flags.steps is None or flags.topk is None or flags.draft_tokens is None:
        return False
    return flags.draft_tokens - 1 > flags.topk + (flags.steps - 1) * flags.topk**2


def _reading(one: DraftClass, version: str) -> Reading:
    reading, _ = reading_of(DraftContract(architecture=one.name), one.server, version)
    assert reading is not None
    assert reading.draft_class.class_name == one.name
    assert reading.draft_class.versions != NEVER
    return reading
