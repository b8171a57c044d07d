"""Provenance: what made the states, and which differences forbid adding to a dataset.

A run appends to a dataset only when everything that changes content is equal. What only changes how fast or
where (hosts, batch sizes, code version) is recorded, and differs freely.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from schemas.problem import Problem
from schemas.record import Record

Mode = Literal["capture", "generate"]
OnTooLong = Literal["truncate", "quarantine"]


class Provenance(Record):
    """Everything that decides the content of a sample beside the schema and the prompt.

    `dtype` is what the engine computes in; the tensors' own dtype stands in the schema. `engine_arguments` go
    to the engine's own library as they are; `None` in records of before they were kept: nothing is held
    against these.
    """

    engine: str
    engine_version: str
    dtype: str
    mode: Mode
    max_tokens: int = Field(gt=0)
    on_too_long: OnTooLong
    min_trained_tokens: int = Field(ge=0)
    sampling: dict[str, object] | None = None
    engine_arguments: dict[str, object] | None = None

    def fatal_differences(self, earlier: "Provenance") -> tuple[Problem, ...]:
        """Return every difference from the `earlier` run of a dataset that forbids adding to it."""
        mine, theirs = self.model_dump(mode="json"), earlier.model_dump(mode="json")
        return tuple(
            Problem(
                where=field,
                kind="provenance",
                message=f"expected {theirs[field]!r} as in the dataset, got {mine[field]!r}",
                repair="write to another dataset, or set it back",
            )
            for field in mine
            if mine[field] != theirs[field]
            and not (field == "engine_arguments" and earlier.engine_arguments is None)
        )


def identity_differences(
    where: str, mine: Mapping[str, object], theirs: Mapping[str, object]
) -> tuple[Problem, ...]:
    """Return the leaves in which two identities (of targets, of schemas) differ, by dotted path.

    A key that one side lacks differs from a key that is `None` there.
    """
    problems: list[Problem] = []
    for key in sorted({*mine, *theirs}):
        left, right = mine.get(key), theirs.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            problems += identity_differences(f"{where}.{key}", left, right)
        elif left != right or (key in mine) != (key in theirs):
            expected = repr(right) if key in theirs else "nothing"
            got = repr(left) if key in mine else "nothing"
            problems.append(
                Problem(where=f"{where}.{key}", kind="identity", message=f"expected {expected}, got {got}")
            )
    return tuple(problems)
