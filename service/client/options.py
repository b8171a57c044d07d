"""What a stream may be told, said once: for the client, which knows no torch, and for the stream itself."""

from collections.abc import Iterator
from typing import Literal, Required, TypedDict, cast, get_args

from schemas.problem import Problem
from service.client.errors import StreamError
from service.client.plan import Budget, TooLong
from service.client.resume import Selection
from service.client.turns import Share
from service.wire.packs import Tail

Layout = Literal["packed", "padded"]
"""Samples end to end in one row, `[sum t, H]`, or a row each, `[B, T, H]`, filled up with zeros."""
Format = Literal["named", "consumer", "consumer_samples"]
"""Batches of named tensors; the arguments that the consumer's model is called with; or the samples as the
consumer's own dataset hands them to its own collate."""


class Options(TypedDict, total=False):
    """The options of a stream."""

    seed: Required[int]
    """Which order: the same seed gives the same batches on any machine."""
    tokens_per_batch: int | None
    """At most so many tokens in a batch."""
    samples_per_batch: int | None
    """At most so many samples in a batch."""
    too_long: TooLong
    """What becomes of samples over `tokens_per_batch`; `"refuse"` unless said."""
    split: str | None
    """One of the version's splits by its name; all samples unless said."""
    min_tokens: int
    """Leave out samples of fewer tokens."""
    min_trained: int
    """Leave out samples of fewer tokens with a loss."""
    rank: int
    """This trainer process among `world_size`."""
    world_size: int
    """Trainer processes that share the stream; each step gives each of them one batch."""
    tail: Tail
    """What becomes of an epoch's last batches that do not go round; to be said for more than one rank."""
    epochs: int | None
    """End when so many epochs are over, counted from the first one ever; without end unless said."""
    prefetch: int
    """Batches that are fetched ahead, 2 unless said; 0 fetches each when it is asked for."""
    layout: Layout
    """How named tensors are laid out; `"packed"` unless said."""
    format: Format
    """What is yielded; `"named"` unless said."""
    pin_memory: bool | None
    """Whether batches lie in pinned memory; where CUDA is, and in no DataLoader worker, unless said."""


def selection_of(options: Options) -> Selection:
    """Return which samples are asked for."""
    return Selection(options.get("split"), options.get("min_tokens", 0), options.get("min_trained", 0))


def budget_of(options: Options) -> Budget:
    """Return how much goes in a batch."""
    return Budget(
        options.get("tokens_per_batch"),
        options.get("samples_per_batch"),
        options.get("too_long", "refuse"),
    )


def share_of(options: Options) -> Share:
    """Return which batches are this rank's."""
    return Share(options.get("rank", 0), options.get("world_size", 1), options.get("tail"))


def check(options: Options) -> None:
    """Raise `StreamError` with everything that is wrong with the options by themselves."""
    problems = list(_mistyped(options))
    named = {problem.where for problem in problems}
    typed = cast(Options, {name: value for name, value in options.items() if name not in named})
    found = [*budget_of(typed).problems(), *share_of(typed).problems(), *_out_of_range(typed)]
    problems += [problem for problem in found if problem.where not in named]
    if problems:
        raise StreamError("the options of the stream do not go together", problems)


def _out_of_range(options: Options) -> Iterator[Problem]:
    choices = {"layout": get_args(Layout), "format": get_args(Format)}
    for where, known in choices.items():
        value = options.get(where, known[0])
        if value not in known:
            message = f"expected one of {', '.join(known)}, got {value!r}"
            yield Problem(where=where, kind="choice", message=message)
    for where, smallest in {"prefetch": 0, "epochs": 1, "min_tokens": 0, "min_trained": 0}.items():
        number = options.get(where)
        if isinstance(number, int) and number < smallest:
            message = f"expected at least {smallest}, got {number}"
            yield Problem(where=where, kind="range", message=message)


OR_NONE = ("tokens_per_batch", "samples_per_batch", "epochs")
WHOLE = (*OR_NONE, "seed", "min_tokens", "min_trained", "rank", "world_size", "prefetch")


def _mistyped(options: Options) -> Iterator[Problem]:
    """Yield options that are not known, missing, or no whole number where one is expected."""
    given = dict(options)
    for where in sorted(given.keys() - Options.__annotations__.keys()):
        message = f"expected one of {', '.join(Options.__annotations__)}, got {where!r}"
        yield Problem(where=where, kind="unknown", message=message)
    if "seed" not in given:
        message = "expected a whole number, got none: the order hangs on it"
        yield Problem(where="seed", kind="missing", message=message)
    for where in WHOLE:
        value = given.get(where)
        is_left_out = where not in given or (value is None and where in OR_NONE)
        if not is_left_out and type(value) is not int:
            message = f"expected a whole number, got {value!r}"
            yield Problem(where=where, kind="type", message=message)
