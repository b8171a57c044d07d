"""The one base class of every persisted value: frozen, closed, with one canonical JSON form.

Canonical JSON (sorted keys, no spaces, ASCII) is what fingerprints and digests are taken of, so two
processes, or two versions of pydantic, that hold the same value always write the same bytes.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import RecordError
from schemas.problem import Problem


def canonical_json(value: Any) -> bytes:
    """Return `value` (plain JSON types) as canonical JSON.

    >>> canonical_json({"b": 1, "a": [1.5, None]})
    b'{"a":[1.5,null],"b":1}'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def sha256_hex(data: bytes | memoryview) -> str:
    """Return the sha256 of `data` as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def validation_problems(error: ValidationError) -> tuple[Problem, ...]:
    """Return what pydantic found as `Problem`s, one a field, each with what was given."""
    return field_problems(error.errors(include_url=False, include_context=False))


def field_problems(items: Iterable[Mapping[str, Any]]) -> tuple[Problem, ...]:
    """Return pydantic's error items (as `ValidationError.errors` gives them) as `Problem`s."""
    return tuple(
        Problem(
            where=".".join(str(piece) for piece in item["loc"]) or "(root)",
            kind=item["type"],
            message=_message(item["type"], item["msg"], item["input"]),
        )
        for item in items
    )


def _message(kind: str, said: str, given: object) -> str:
    """Return pydantic's message the way every other problem here is said: *expected X, got Y*."""
    if kind == "missing":
        return "expected this field, got none"
    if kind == "extra_forbidden":
        return f"expected no such field, got {_shortened(given)}"
    if kind == "value_error":
        return said.removeprefix("Value error, ")
    said = re.sub(r", unable to parse .*", "", said)
    expected = re.sub(r"^\w+ should (be )?", lambda match: "expected " if match[1] else "expected to ", said)
    return f"{expected}, got {_shortened(given)}"


def _shortened(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class Record(BaseModel):
    """A value that is written to disk or sent over the wire.

    A Python value may be given loosely (a list from TOML for a tuple); `from_json` is strict, since in a
    record that was written by us `"3"`, `3.0` or `true` for a number is damage or another program's file.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self) -> bytes:
        """Return the canonical JSON of this record."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Self:
        """Read a record; `where` names the file in the message.

        Raises `RecordError` with every problem when `data` is no such record, or does not say its format.
        """
        headline = f"{where} is not a valid {cls.__name__}"
        try:
            record = cls.model_validate_json(data, strict=True)
        except ValidationError as error:
            raise RecordError(headline, validation_problems(error)) from error
        if "format" in cls.model_fields and "format" not in record.model_fields_set:
            expected = cls.model_fields["format"].default
            raise RecordError(
                headline,
                [Problem(where="format", kind="missing", message=f"expected {expected!r}, got no format")],
            )
        return record
