"""The one base class of every persisted value: frozen, closed, with one canonical JSON form.

Canonical JSON (sorted keys, no spaces, ASCII) is what fingerprints and digests are taken of, so two
processes, or two versions of pydantic, that hold the same value always write the same bytes.
"""

import hashlib
import json
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
    return tuple(
        Problem(
            where=".".join(str(piece) for piece in item["loc"]) or "(root)",
            kind=item["type"],
            message=f"{item['msg']}, got {_shortened(item['input'])}",
        )
        for item in error.errors(include_url=False, include_context=False)
    )


def _shortened(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class Record(BaseModel):
    """A value that is written to disk or sent over the wire."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")

    def to_json(self) -> bytes:
        """Return the canonical JSON of this record."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Self:
        """Read a record; `where` names the file in the message.

        Raises `RecordError` with every problem when `data` is no such record.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise RecordError(f"{where} is not a valid {cls.__name__}", validation_problems(error)) from error
