"""Two contracts side by side: what the weights were trained with, and what is served."""

from collections.abc import Iterator

from schemas.contract.draft import DraftContract
from schemas.contract.servers import meanings
from schemas.contract.shown import shown
from schemas.problem import Problem


def differences(trained: DraftContract, served: DraftContract) -> Iterator[Problem]:
    """Yield every way in which a served contract departs from the trained one, with what follows.

    Layout, class and RoPE's spelling may differ. What one of the two does not say is a note.
    """
    for meaning in meanings():
        expected, got = getattr(trained.norms, meaning.name), getattr(served.norms, meaning.name)
        yield from _one(meaning.name, expected, got, f"{meaning.says}; {meaning.follows}")
    for where, expected, got, follows in _plain(trained, served):
        yield from _one(where, expected, got, follows)


def _plain(trained: DraftContract, served: DraftContract) -> Iterator[tuple[str, object, object, str]]:
    rotated = (
        "attention looks for tokens at other distances than it was trained on, more so the longer the text"
    )
    yield "rope_theta", trained.rope.theta, served.rope.theta, rotated
    if trained.rope.scaling != served.rope.scaling:
        yield "rope_scaling", trained.rope.scaling or "none", served.rope.scaling or "none", rotated
    # No window is a statement, not a missing one.
    windows = trained.sliding_window, served.sliding_window
    if windows[0] != windows[1]:
        follows = "the draft attends to more or fewer tokens than it was trained on"
        yield "sliding_window", windows[0] or "no window", windows[1] or "no window", follows
    other = "the weights have other shapes than the server builds"
    for name in ("n_layers", "hidden_size", "target_hidden_size", "head_dim", "n_slots"):
        yield name, getattr(trained.shape, name), getattr(served.shape, name), other
    ids = "an id of one vocabulary is another token, or none, in the other"
    yield "vocab_size", trained.vocabulary.size, served.vocabulary.size, ids
    yield "draft_vocab_size", trained.vocabulary.draft_size, served.vocabulary.draft_size, ids
    tied = "the lm_head that turns states into tokens is another matrix"
    yield "tie_word_embeddings", trained.tie_word_embeddings, served.tie_word_embeddings, tied
    trained_embed = "tokens enter the draft through another embedding"
    yield "embed_requires_grad", trained.embed_trained, served.embed_trained, trained_embed


def _one(where: str, expected: object, got: object, follows: str) -> Iterator[Problem]:
    if expected == got:
        return
    if expected is None or got is None:
        silent = "the trained contract" if expected is None else "the served config"
        said = got if expected is None else expected
        yield Problem(
            where=where,
            kind="not_said",
            severity="note",
            message=f"one says {_said(said)}, {silent} says nothing: not compared",
            repair=f"write {where} where it is missing",
        )
        return
    yield Problem(
        where=where,
        kind="contract",
        message=f"trained with {_said(expected)}, served with {_said(got)}: {follows}",
        repair=f"write {where} as trained, {_said(expected)}, into the served config.json",
    )


def _said(value: object) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else shown(value)
    )
