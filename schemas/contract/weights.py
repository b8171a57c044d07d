"""Names of a checkpoint against a server's class: what it drops in silence, refuses, or lacks."""

import re
from collections.abc import Iterator, Mapping

from schemas.contract.draft import DraftContract
from schemas.contract.servers import Meaning, Reading, meanings
from schemas.contract.shown import listed_names
from schemas.problem import Problem

_QUANTIZED = re.compile(
    r".*(scale|scales|zero_point|packed|qweight|qzeros|g_idx|weight_shape|weight_scale_inv)"
)
_MAX_NAME = 256
"""Longer names are no tensor's; patterns are not run over them."""


def weight_problems(
    contract: DraftContract, reading: Reading, tensors: Mapping[str, object]
) -> Iterator[Problem]:
    """Yield what becomes of a checkpoint's weights other than being loaded, and what it lacks."""
    stray: list[str] = []
    quantized = any(_QUANTIZED.fullmatch(name[-_MAX_NAME:]) for name in tensors)
    for meaning in meanings():
        yield from _flag_weights(contract, reading, meaning, tensors)
    for name in tensors:
        if len(name) > _MAX_NAME or not (reading.loads(name) or _owned(name)):
            stray.append(name)
    if quantized:
        yield Problem(
            where="weights",
            kind="quantized",
            severity="note",
            message="the draft is quantized: what its method loads is not judged",
        )
    elif stray:
        yield _stray(reading, stray)
    yield from _dropped_head(contract, reading, tensors)
    if not quantized:
        yield from _lacking(contract, reading, tensors)


def _owned(name: str) -> bool:
    return any(meaning.owns(name) for meaning in meanings())


def _flag_weights(
    contract: DraftContract, reading: Reading, meaning: Meaning, tensors: Mapping[str, object]
) -> Iterator[Problem]:
    if not meaning.weights:
        return
    owned = [name for name in tensors if len(name) <= _MAX_NAME and meaning.owns(name)]
    said, runs = getattr(contract.norms, meaning.name), reading.runs(meaning.name, contract)
    if runs and said and (missing := _missing(contract, meaning, owned)):
        yield Problem(
            where=meaning.name,
            kind="weight_missing",
            message=f"{meaning.name} is true, which needs {missing}; the checkpoint has "
            f"{listed_names(owned) or 'none'}: {reading.title} runs that norm with weights of one, and does "
            "not say so",
            repair=f"export the checkpoint with {missing}, or write {meaning.name} as trained",
        )
    if owned and not said:
        fate = reading.fate_of(owned[0])
        follows = f", and {meaning.follows}" if "without a word" in fate else ""
        yield Problem(
            where=meaning.name,
            kind="weight_without_flag",
            message=f"{meaning.name} is not on in the config, but the checkpoint has {listed_names(owned)}: "
            f"by {reading.title} it is {fate}{follows}",
            repair=f'write "{meaning.name}": true at the top of config.json: the weights were trained so',
        )


def _missing(contract: DraftContract, meaning: Meaning, owned: list[str]) -> str | None:
    if meaning.name == "fc_norm":
        slots = contract.shape.n_slots or 3
        return None if len(owned) == slots else f"{slots} of fc_norm.N.weight, one a slot"
    return None if owned else meaning.weights[0].replace("\\", "")


def _stray(reading: Reading, stray: list[str]) -> Problem:
    unknown = reading.draft_class.unknown
    what = {
        "skipped": "skips them without a word, and the weights that it has in their place stay as they were "
        "made",
        "warned": "skips them with a warning in the log",
        "refused": "refuses the checkpoint",
    }[unknown]
    if (
        any(re.fullmatch(r"(model\.)?layers\.\d+\..*", name) for name in stray)
        and "layers" not in reading.draft_class.layer
    ):
        repair = "rename layers.0. to midlayer. in the checkpoint, or serve with a newer server"
    elif any(re.search(r"\.(q|k)_norm\.", name) for name in stray):
        repair = "the draft is of the Qwen3 type: serve it with vLLM 0.24 or later (Eagle3Qwen3ForCausalLM), "
        repair += "or train a draft of the type llama"
    else:
        repair = "rename or drop them, or serve with a server whose class has them"
    return Problem(
        where="weights",
        kind="weight_unknown",
        message=f"{reading.title} has no {listed_names(stray)} in {reading.draft_class.class_name}: it "
        f"{what}",
        repair=repair,
    )


def _dropped_head(
    contract: DraftContract, reading: Reading, tensors: Mapping[str, object]
) -> Iterator[Problem]:
    if reading.draft_class.reads_tie and contract.tie_word_embeddings and "lm_head.weight" in tensors:
        yield Problem(
            where="lm_head.weight",
            kind="tie",
            message=f"tie_word_embeddings is true, so {reading.title} drops lm_head.weight without a word "
            "and takes the embedding: the draft proposes with another lm_head than it was trained with",
            repair='write "tie_word_embeddings": false in config.json',
        )
    own = next(
        (name for name in tensors if name in ("embed_tokens.weight", "model.embed_tokens.weight")), None
    )
    if reading.draft_class.embeds_the_target and own is not None and not contract.embed_trained:
        yield Problem(
            where="embed_tokens.weight",
            kind="embedding",
            severity="note",
            message=f"{reading.title} puts the target's embedding in place of {own}: the same thing, unless "
            "the draft's was trained",
        )


def _lacking(contract: DraftContract, reading: Reading, tensors: Mapping[str, object]) -> Iterator[Problem]:
    ends = ["fc.weight", "norm.weight", "hidden_norm.weight", "o_proj.weight", "down_proj.weight"]
    if contract.vocabulary.draft_size is not None and not contract.tie_word_embeddings:
        ends.append("lm_head.weight")
    lacking = [end for end in ends if not any(name == end or name.endswith(f".{end}") for name in tensors)]
    if lacking:
        yield Problem(
            where="weights",
            kind="weight_missing",
            message=f"expected {listed_names(lacking)}, got none: {reading.title} does not notice, and runs "
            "with what memory held or with the target's",
            repair="export the whole draft; check that this is the checkpoint and not a part of it",
        )
