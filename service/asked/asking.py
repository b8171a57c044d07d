"""What a request asks for, judged against the schema and the sample: names, a window, a format."""

from collections.abc import Sequence

from datagen.store.part_reader import window_of
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.problem import Problem
from schemas.schema import Schema
from service.errors import MalformedError, RangeError
from service.wire.names import RAW_TYPE, SAFETENSORS_TYPE, TensorFormat
from service.wire.window import window_from

_MADE = "ask for final, and run the norm of .../final_norm over it, as the client does"


def names_in(schema: Schema, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the tensors and token columns that are asked for, each once; all there are by default.

    Raises `MalformedError` that lists them, for each name that is none of them.
    """
    known = (*schema.names, *(column.name for column in schema.token_columns))
    if asked is None:
        return known
    problems = [
        Problem(
            where="names",
            kind="tensor_name",
            message=f"expected one of {', '.join(known)}, got {name!r}",
            repair=_MADE if name == FINAL_NORMED and FINAL in known else None,
        )
        for name in asked
        if name not in known
    ]
    if problems:
        raise MalformedError("no such tensor", problems)
    return tuple(dict.fromkeys(asked))


def tokens_in(n_tokens: int, asked: str | None) -> tuple[int, int]:
    """Return the first token of a window of a sample and the one after its last; it is never clipped.

    Raises `MalformedError` for what is no window, and `RangeError` that says the sample's length.
    """
    if asked is None:
        return 0, n_tokens
    try:
        window = window_from(asked)
    except ValueError as error:
        problem = Problem(where="tokens", kind="window", message=str(error))
        raise MalformedError("no such window", [problem]) from error
    try:
        first, end = window_of(window, n_tokens)
        if first == end:
            raise IndexError
    except IndexError as error:
        message = f"expected a window within the {n_tokens} tokens of the sample, got {asked}"
        problem = Problem(where="tokens", kind="window", message=message)
        raise RangeError("the window leaves the sample", [problem]) from error
    return first, end


def format_of(asked: TensorFormat | None, accept: str | None, names: Sequence[str]) -> TensorFormat:
    """Return the format that a query asks for or, where it says nothing, the one that `Accept` names.

    Raises `MalformedError` when raw bytes are asked for of other than one tensor.
    """
    accepted = [item.partition(";")[0].strip().lower() for item in (accept or "").split(",")]
    accepts_raw = RAW_TYPE in accepted and not {SAFETENSORS_TYPE, "*/*", "application/*"} & {*accepted}
    form: TensorFormat = asked or ("raw" if accepts_raw else "safetensors")
    if form == "raw" and len(names) != 1:
        message = f"expected exactly one name for raw bytes, got {len(names)}: {', '.join(names)}"
        repair = f"ask for one of names=, or for {SAFETENSORS_TYPE}"
        problem = Problem(where="names", kind="count", message=message, repair=repair)
        raise MalformedError("raw bytes are of one tensor", [problem])
    return form
