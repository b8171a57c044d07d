"""A contract against a server: what it would run otherwise than training, refuse, or drop without a word."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from schemas.contract.draft import DraftContract
from schemas.contract.servers import NEVER, Meaning, Reading, meanings, reading_of
from schemas.contract.vocabulary import vocabulary_problems
from schemas.contract.weights import weight_problems
from schemas.problem import Problem

Tensors = Mapping[str, Sequence[int]] | Iterable[str]
"""The names of a checkpoint's weights, better with their shapes."""

MEASURED = (
    "measured on SmolLM2: accuracy 0.357 as trained, 0.356 without norm_before_residual, 0.358 without "
    "norm_before_fc, 0.153 without both"
)
"""The source of the figure: a draft trained with both flags, each taken away in turn."""


def contract_problems(
    contract: DraftContract,
    server: str,
    version: str | None,
    tensors: Tensors | None = None,
    target_vocab_size: int | None = None,
    window: int | None = None,
) -> Iterator[Problem]:
    """Yield what a server at a version makes of this contract other than training did.

    `tensors` are the checkpoint's weights, as names or with shapes; without them only the config is judged.
    `window` is what the serving flags say of the draft's window (`ServingFlags.window`).
    """
    reading, assumed = reading_of(contract, server, version)
    yield from assumed
    if reading is None:
        return
    if contract.layout == "speculators" and not reading.holds(reading.server.speculators):
        yield _unread_layout(reading)
        # What follows is what the server would make of the config once it is written plain.
        contract = contract.model_copy(update={"layout": "plain"})
    shapes = None if tensors is None else _shapes(tensors)
    for meaning in meanings():
        yield from _flag_problems(contract, reading, meaning, shapes)
    yield from _config_problems(contract, reading)
    yield from _window_problems(contract, reading, window)
    yield from vocabulary_problems(contract, reading, shapes, target_vocab_size)
    if shapes is not None:
        yield from weight_problems(contract, reading, shapes)


def _shapes(tensors: Tensors) -> dict[str, tuple[int, ...] | None]:
    if isinstance(tensors, Mapping):
        return {name: tuple(shape) for name, shape in tensors.items()}
    return dict.fromkeys(tensors)


def _unread_layout(reading: Reading) -> Problem:
    return Problem(
        where="config.json",
        kind="layout",
        message=f"expected a plain config, got one of speculators' format, which {reading.title} does not "
        "read: it finds neither the layer's sizes nor the norm flags",
        repair="write a plain config.json: the fields of transformer_layer_config at the top, with "
        f'"architectures": ["{reading.draft_class.names[0]}"], draft_vocab_size and the norm flags beside '
        "them",
    )


def _flag_problems(
    contract: DraftContract, reading: Reading, meaning: Meaning, tensors: Mapping[str, object] | None
) -> Iterator[Problem]:
    said, runs = getattr(contract.norms, meaning.name), reading.runs(meaning.name, contract)
    if said is None:
        yield _unsaid(reading, meaning, runs)
        return
    if said == runs or not said:
        return
    owned = [name for name in tensors or () if meaning.owns(name)]
    lost = f", and {owned[0]} is {reading.fate_of(owned[0])}" if owned else ""
    measured = f" ({MEASURED})" if meaning.name in ("norm_before_residual", "norm_before_fc") else ""
    yield Problem(
        where=meaning.name,
        kind="flag_unread",
        message=f"trained with {meaning.name} ({meaning.says}), which {reading.title} does not read for "
        f"{reading.draft_class.class_name}{lost}: {meaning.follows}{measured}",
        repair=_flag_repair(contract, reading, meaning),
    )


def _unsaid(reading: Reading, meaning: Meaning, runs: bool) -> Problem:
    return Problem(
        where=meaning.name,
        kind="flag_unsaid",
        message=f"the config does not say {meaning.name}: {reading.title} takes {str(runs).lower()}, "
        f"speculators' own loader false, and its trainer true by default; taken wrongly, {meaning.follows}",
        repair=f"write {meaning.name}, as trained, at the top of config.json",
    )


def _flag_repair(contract: DraftContract, reading: Reading, meaning: Meaning) -> str:
    """Return the cheapest way out: another version, another layout, another server, other weights."""
    reader = reading.reader_of(meaning.name)
    other = f"train with {meaning.name} false"
    if reader is not None:
        versions = reader.speculators if contract.layout == "speculators" else reader.plain
        if versions != NEVER:
            return f"serve with {reading.server.title} {versions}, or {other}"
    elsewhere = {"sglang": "vLLM", "vllm": "SGLang"}[reading.server.name]
    return (
        f"no version of {reading.server.title} up to {reading.server.last} reads it for this class: serve "
        f"with {elsewhere} if it does (check again with --server {elsewhere.lower()}), or {other}"
    )


def _config_problems(contract: DraftContract, reading: Reading) -> Iterator[Problem]:
    draft_class, shape = reading.draft_class, contract.shape
    if (shape.n_layers or 1) > 1 and not reading.holds(draft_class.several_layers):
        yield Problem(
            where="num_hidden_layers",
            kind="layers",
            message=f"expected 1 layer, got {shape.n_layers}: {reading.title} builds one only",
            repair="serve with a newer server, or train a draft of one layer",
        )
    if contract.rope.spelling == "rope_parameters" and not reading.holds(
        draft_class.rope_parameters or ">=0"
    ):
        yield Problem(
            where="rope_parameters",
            kind="rope",
            message=f"RoPE stands in rope_parameters only, and {reading.title} reads rope_theta and "
            "rope_scaling: it rotates by the default of 10000, without scaling",
            repair=f"write {_old_rope(contract)} at the top of config.json as well",
        )
    yield from _tie_and_embedding(contract, reading)


def _window_problems(contract: DraftContract, reading: Reading, flag: int | None) -> Iterator[Problem]:
    name, trained = reading.draft_class.window_flag, contract.sliding_window
    # Where a flag sets the window, the config's is not read; elsewhere a flag of that name has no effect.
    served = flag if name else trained if reading.holds(reading.draft_class.window) else None
    if served == trained:
        return
    repairs = {
        True: "serve with another server or version, or train without a window",
        False: f"start the server without {name}"
        if trained is None
        else f"start the server with {name} {trained}",
    }
    yield Problem(
        where="sliding_window",
        kind="window",
        message=f"trained with {_window(trained)}, and {reading.title} runs {_window(served)}"
        + (f" ({name} decides, the config's is not read)" if name else " (it does not read the config's)")
        + ": the draft attends to more or fewer tokens than it was trained on",
        repair=repairs[name is None],
    )


def _window(size: int | None) -> str:
    return "no window" if size is None else f"a window of {size}"


def _old_rope(contract: DraftContract) -> str:
    theta = f'"rope_theta": {contract.rope.theta:g}' if contract.rope.theta else "rope_theta"
    return f"{theta} and rope_scaling" if contract.rope.scaling else theta


def _tie_and_embedding(contract: DraftContract, reading: Reading) -> Iterator[Problem]:
    same_width = contract.shape.target_hidden_size in (None, contract.shape.hidden_size)
    if reading.draft_class.embeds_the_target and contract.embed_trained and same_width:
        yield Problem(
            where="embed_tokens",
            kind="embedding",
            message=f"embed_tokens was trained (embed_requires_grad), and {reading.title} puts the target's "
            "in its place without a word: tokens enter the draft through another embedding than in training",
            repair="train with embed_requires_grad false, or serve with vLLM, which keeps the draft's own",
        )
    if not contract.tie_word_embeddings:
        return
    if not reading.draft_class.reads_tie:
        yield Problem(
            where="tie_word_embeddings",
            kind="tie",
            severity="note",
            message=f"tie_word_embeddings is true, and {reading.title} does not read it for a draft: it "
            "takes the checkpoint's lm_head",
        )
    elif contract.vocabulary.draft_size not in (None, contract.vocabulary.size):
        yield Problem(
            where="tie_word_embeddings",
            kind="tie",
            message=f"tie_word_embeddings is true: {reading.title} takes the embedding of all "
            f"{contract.vocabulary.size} tokens for the lm_head, in place of the draft's own of "
            f"{contract.vocabulary.draft_size} rows; its row numbers are then read through d2t as draft ids",
            repair='write "tie_word_embeddings": false in config.json',
        )
