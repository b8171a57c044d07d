"""The schema: which tensors a dataset has, of which target, and the check of a sample against it.

Checks take facts (dtype and shape), not arrays, so the worker, the reader and a client run the same one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Self, get_args

from pydantic import Field, PositiveInt, model_validator

from schemas.boundary import NormState, Place, place_of
from schemas.errors import SchemaError
from schemas.problem import Problem
from schemas.record import Record, canonical_json, sha256_hex
from schemas.target import Target

DType = Literal["bfloat16", "float16", "float32"]
DTYPES: tuple[DType, ...] = get_args(DType)
ITEM_BYTES: Mapping[str, int] = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "int32": 4,
    "uint8": 1,
    "int64": 8,
}

TokenDType = Literal["int32", "uint8"]


class TensorFacts(NamedTuple):
    """What a check needs to know of an array."""

    dtype: str
    shape: tuple[int, ...]


class TensorSpec(Record):
    """One declared tensor: `[token, width]`, unpadded, unshifted.

    >>> str(TensorSpec(name="layer3", boundary=3, norm="pre_norm", dtype="bfloat16", width=7168))
    'layer3: bfloat16[token, 7168]'
    """

    name: str
    boundary: int = Field(ge=0)
    norm: NormState
    dtype: DType
    width: PositiveInt

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[token, {self.width}]"

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's row."""
        return self.width * ITEM_BYTES[self.dtype]


class TokenColumn(Record):
    """One value a token: `input_ids`, `loss_mask`, and on an audit set `target_argmax`."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    dtype: TokenDType

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's value."""
        return ITEM_BYTES[self.dtype]


INPUT_IDS = TokenColumn(name="input_ids", dtype="int32")
LOSS_MASK = TokenColumn(name="loss_mask", dtype="uint8")
TARGET_ARGMAX = TokenColumn(name="target_argmax", dtype="int32")


class Schema(Record):
    """The target and the declared tensors and token columns of a dataset.

    Tensors stand in the order of depth: a dataset has no order of its own, a consumer's wiring does.
    """

    format: Literal["strata.schema.v1"] = "strata.schema.v1"
    target: Target
    tensors: tuple[TensorSpec, ...] = Field(min_length=1)
    token_columns: tuple[TokenColumn, ...] = (INPUT_IDS, LOSS_MASK)

    @classmethod
    def declare(
        cls,
        target: Target,
        names: Iterable[str],
        dtype: DType,
        token_columns: tuple[TokenColumn, ...] = (INPUT_IDS, LOSS_MASK),
    ) -> Self:
        """Return the schema of the named tensors, sorted by depth.

        Raises `SchemaError` with every name that `target` does not have or that is given twice.
        """
        names = tuple(names)
        places = {name: place_of(name, target.n_layers) for name in names}
        problems = [place for place in places.values() if isinstance(place, Problem)]
        problems += [
            Problem(where=name, kind="duplicate", message=f"expected once, got {names.count(name)} times")
            for name in places
            if names.count(name) > 1
        ]
        if not names:
            problems.append(
                Problem(where="tensors", kind="empty", message="expected at least one tensor, got none")
            )
        if problems:
            raise SchemaError(f"the tensors do not fit {target.model_id}", problems)
        known = {name: place for name, place in places.items() if isinstance(place, Place)}
        specs = (
            TensorSpec(
                name=name, boundary=place.boundary, norm=place.norm, dtype=dtype, width=target.hidden_size
            )
            for name, place in sorted(
                known.items(), key=lambda item: (item[1].boundary, item[1].norm == "post_norm")
            )
        )
        return cls(target=target, tensors=tuple(specs), token_columns=token_columns)

    @model_validator(mode="after")
    def _names_mean_places(self) -> Self:
        wrong: list[str] = []
        for spec in self.tensors:
            place = place_of(spec.name, self.target.n_layers)
            if isinstance(place, Problem):
                wrong.append(str(place))
            elif place != (spec.boundary, spec.norm):
                wrong.append(f"{spec.name}: expected {place}, got {Place(spec.boundary, spec.norm)}")
            if spec.width != self.target.hidden_size:
                wrong.append(f"{spec.name}: expected width {self.target.hidden_size}, got {spec.width}")
        depths = [(spec.boundary, spec.norm == "post_norm") for spec in self.tensors]
        if depths != sorted(set(depths)):
            wrong.append(f"tensors: expected distinct names in the order of depth, got {self.names}")
        columns = self.token_columns
        if columns[:2] != (INPUT_IDS, LOSS_MASK) or len({column.name for column in columns}) != len(columns):
            got = [f"{column.name} {column.dtype}" for column in columns]
            wrong.append(
                f"token_columns: expected input_ids int32, loss_mask uint8, distinct others, got {got}"
            )
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names in the order of depth."""
        return tuple(spec.name for spec in self.tensors)

    @property
    def fingerprint(self) -> str:
        """The sha256 of the canonical JSON, the target's identity included, its path left out."""
        content = self.model_dump(mode="json")
        content["target"] = self.target.identity()
        return sha256_hex(canonical_json(content))

    def by_name(self) -> dict[str, object]:
        """Return what the fingerprint is taken of, tensors and columns by name: a difference names one."""
        return {
            "target": self.target.identity(),
            "tensors": {spec.name: str(spec) for spec in self.tensors},
            "token_columns": {column.name: column.dtype for column in self.token_columns},
        }

    @property
    def token_bytes(self) -> int:
        """Bytes of one token over all hidden tensors."""
        return sum(spec.row_bytes for spec in self.tensors)

    def tensor(self, name: str) -> TensorSpec:
        """Return the spec of `name`; raises `SchemaError` that lists the tensors there are."""
        for spec in self.tensors:
            if spec.name == name:
                return spec
        message = f"expected one of {', '.join(self.names)}, got {name!r}"
        raise SchemaError("no such tensor", [Problem(where=name, kind="tensor_name", message=message)])

    def problems(self, n_tokens: int, tensors: Mapping[str, TensorFacts]) -> Iterator[Problem]:
        """Yield every way in which a sample's tensors depart from this schema."""
        for spec in self.tensors:
            facts = tensors.get(spec.name)
            if facts is None:
                yield Problem(where=spec.name, kind="missing", message=f"expected {spec}, got no such tensor")
                continue
            if facts.dtype != spec.dtype:
                yield Problem(
                    where=spec.name, kind="dtype", message=f"expected {spec.dtype}, got {facts.dtype}"
                )
            expected = (n_tokens, spec.width)
            if facts.shape != expected:
                yield Problem(
                    where=spec.name, kind="shape", message=f"expected {expected}, got {facts.shape}"
                )
        for name in tensors:
            if name not in self.names:
                yield Problem(
                    where=name,
                    kind="undeclared",
                    message=f"expected only {', '.join(self.names)}, got {name!r} too",
                )
