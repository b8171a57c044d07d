"""Draft ids and target ids: their number, and the maps `d2t` (offsets by draft id) and `t2d` (marks)."""

from collections.abc import Iterator, Mapping

from schemas.contract.draft import DraftContract
from schemas.contract.servers import Reading
from schemas.problem import Problem

Shapes = Mapping[str, tuple[int, ...] | None]


def vocabulary_problems(
    contract: DraftContract, reading: Reading, tensors: Shapes | None, target_vocab_size: int | None
) -> Iterator[Problem]:
    """Yield what is wrong between the draft's vocabulary, the target's and the maps between them."""
    size = target_vocab_size if target_vocab_size is not None else contract.vocabulary.size
    draft_size = contract.vocabulary.draft_size
    if target_vocab_size is not None and contract.vocabulary.size not in (None, target_vocab_size):
        yield Problem(
            where="vocab_size",
            kind="vocabulary",
            message=f"expected {target_vocab_size}, the target's vocabulary, got {contract.vocabulary.size}",
            repair=f'write "vocab_size": {target_vocab_size} if the draft was trained for this target at all',
        )
    if draft_size is not None and size is not None and draft_size > size:
        yield Problem(
            where="draft_vocab_size",
            kind="vocabulary",
            message=f"expected at most {size}, the target's vocabulary, got {draft_size}",
            repair="write the number of rows of lm_head.weight",
        )
    if draft_size is None and reading.draft_class.reads_tie and not contract.tie_word_embeddings:
        yield Problem(
            where="draft_vocab_size",
            kind="vocabulary",
            severity="note",
            message=f"no draft_vocab_size: {reading.title} takes the target's lm_head where it is null, and "
            "stops with an AttributeError where the key is missing",
            repair="write the number of rows of lm_head.weight, or null for the target's lm_head",
        )
    if tensors is not None:
        yield from _map_problems(draft_size, size, reading, tensors)
        yield from _shape_problems(contract, draft_size, size, tensors)


def _named(tensors: Shapes, name: str) -> str | None:
    """Return the weight that a loader takes for `name`: the name itself, bare or under a prefix."""
    return next((tensor for tensor in tensors if tensor == name or tensor.endswith(f".{name}")), None)


def _map_problems(
    draft_size: int | None, size: int | None, reading: Reading, tensors: Shapes
) -> Iterator[Problem]:
    if draft_size is None or size is None:
        return
    d2t = _named(tensors, "d2t")
    if draft_size < size and d2t is None:
        yield Problem(
            where="d2t",
            kind="vocabulary",
            message=f"expected d2t, since the draft knows {draft_size} of the target's {size} tokens, got "
            f"none: {reading.title} takes draft ids for target ids without a word, and nearly every "
            "proposal is wrong",
            repair="export the checkpoint with its d2t (int64, target id minus draft id)",
        )
    if draft_size == size and d2t is not None and reading.holds(reading.draft_class.refuses_full_map):
        yield Problem(
            where="d2t",
            kind="vocabulary",
            message=f"expected no d2t, since draft and target know the same {size} tokens, got {d2t}: "
            f"{reading.title} has no place for it and refuses the checkpoint",
            repair="drop d2t and t2d from the checkpoint",
        )


def _shape_problems(
    contract: DraftContract, draft_size: int | None, size: int | None, tensors: Shapes
) -> Iterator[Problem]:
    shape = contract.shape
    slot = shape.target_hidden_size or shape.hidden_size
    fc_width = slot * shape.n_slots if slot and shape.n_slots else None
    wanted: tuple[tuple[str, str, tuple[int | None, ...]], ...] = (
        ("d2t", "draft_vocab_size", (draft_size,)),
        ("t2d", "the target's vocabulary", (size,)),
        ("lm_head.weight", "draft_vocab_size, hidden_size", (draft_size or size, shape.hidden_size)),
        ("embed_tokens.weight", "vocab_size, hidden_size", (contract.vocabulary.size, shape.hidden_size)),
        ("fc.weight", "hidden_size, slots times the target's hidden size", (shape.hidden_size, fc_width)),
    )
    for name, meaning, expected in wanted:
        tensor = _named(tensors, name)
        got = tensors[tensor] if tensor is not None else None
        if got is None or _fits(expected, got):
            continue
        yield Problem(
            where=name,
            kind="shape",
            message=f"expected the shape [{', '.join('any' if n is None else str(n) for n in expected)}] "
            f"({meaning}), got [{', '.join(map(str, got[:8]))}]",
            repair="the config and the weights are of different drafts, or one was edited: take both from "
            "one export",
        )


def _fits(expected: tuple[int | None, ...], got: tuple[int, ...]) -> bool:
    return len(expected) == len(got) and all(
        want is None or want == have for want, have in zip(expected, got, strict=True)
    )
