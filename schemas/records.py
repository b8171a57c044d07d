"""The records of a dataset on disk: who made what, what lies where, and what a version is made of.

Every record carries its format version, is written once and never changed. Digests form a chain:
version -> index files -> part.json -> samples.parquet, zarr.json's and the small arrays (sha256); the hidden
tensors by crc32c a block of 64 rows of each sample, counted from its start.
"""

from typing import Literal, Protocol, Self

from pydantic import AwareDatetime, Field, NonNegativeInt, PositiveInt

from schemas.provenance import Provenance
from schemas.record import Record, canonical_json, sha256_hex

BLOCK_ROWS = 64

Sha256 = Field(pattern=r"^[0-9a-f]{64}$")
Uuid = Field(pattern=r"^[0-9a-f]{32}$")

QuarantineReason = Literal[
    "unreadable_record",  # the line or record cannot be parsed, or is of no known format
    "empty",  # no messages, or no tokens
    "no_answer",  # no assistant turn to train on
    "unrenderable",  # the chat template refuses it
    "too_few_trained_tokens",  # fewer than the run's minimum after truncation
    "too_long",  # longer than max_tokens, with on_too_long = quarantine
    "mask_conflict",  # the same token ids as another sample, with another loss mask
    "token_out_of_vocabulary",
    "non_finite",  # NaN or Inf in a tensor
    "wrong_content",  # it departs from what was asked, from the audit set, or from a second pass
    "poison",  # killed the workers that tried it
    "duplicate_answer",  # another answer came to the same token ids: the first is kept
    "truncated_answer",  # an answer reached its limit, with generate.on_truncated = quarantine
]


class DatasetRecord(Record):
    """`dataset.json`: identity and format version. Written once, create-exclusive."""

    format: Literal["strata.dataset.v1"] = "strata.dataset.v1"
    dataset_id: str = Uuid
    name: str
    created_at: AwareDatetime


class FileDigest(Record):
    """A file of a part, named relative to its folder; hidden shards carry no sha256 (crc32c covers them)."""

    path: str
    size_bytes: NonNegativeInt
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


class PartTensor(Record):
    """Where a hidden tensor's shard lies in its part: row `r` starts at byte `r * row_bytes` of `path`."""

    name: str
    path: str
    row_bytes: PositiveInt
    payload_bytes: PositiveInt


class PartRecord(Record):
    """`part.json`, written last: without it there is no part."""

    format: Literal["strata.part.v1"] = "strata.part.v1"
    part_id: str = Uuid
    run_id: str
    schema_fingerprint: str = Sha256
    created_at: AwareDatetime
    n_samples: PositiveInt
    n_tokens: PositiveInt
    tensors: tuple[PartTensor, ...]
    files: tuple[FileDigest, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files of the part, `part.json` left out."""
        return sum(file.size_bytes for file in self.files)


class IndexFile(Record):
    """A content-hashed Parquet file (`index/<sha256>.parquet` or `quarantine/<sha256>.parquet`)."""

    sha256: str = Sha256
    n_rows: PositiveInt
    n_tokens: NonNegativeInt
    size_bytes: PositiveInt


class SplitRule(Record):
    """A deterministic split by the hash of the conversation id: pieces of a conversation never straddle."""

    name: str
    seed: int
    fractions: tuple[tuple[str, float], ...]


class CondemnedPart(Record):
    """A part that gc may remove after its grace period; a committer that holds it must fail."""

    part_id: str = Uuid
    condemned_at: AwareDatetime


class NumberedVersion(Protocol):
    """A version by its number, and which dataset it is of; a `VersionRecord` is one."""

    @property
    def number(self) -> int: ...

    @property
    def dataset_id(self) -> str: ...


Operation = Literal["append", "drop", "split", "rollback", "condemn"]


class VersionRecord(Record):
    """`versions/00000001.json`: an immutable numbered list of samples, by the index files that hold them."""

    format: Literal["strata.version.v1"] = "strata.version.v1"
    number: PositiveInt
    parent: PositiveInt | None
    parent_digest: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    operation: Operation
    commit_id: str = Uuid
    created_at: AwareDatetime
    dataset_id: str = Uuid
    schema_fingerprint: str = Sha256
    run_id: str | None
    n_samples: NonNegativeInt
    n_tokens: NonNegativeInt
    size_bytes: NonNegativeInt
    index: tuple[IndexFile, ...]
    quarantine: tuple[IndexFile, ...] = ()
    n_quarantined: NonNegativeInt = 0
    splits: tuple[SplitRule, ...] = ()
    condemned: tuple[CondemnedPart, ...] = ()
    digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")

    def content_digest(self) -> str:
        """Return the sha256 of this record's canonical JSON without its own digest."""
        return sha256_hex(canonical_json(self.model_dump(mode="json", exclude={"digest"})))

    def sealed(self) -> Self:
        """Return this record with its digest filled in."""
        return self.model_copy(update={"digest": self.content_digest()})


class VersionName(Record):
    """`names/<name>.json`: a version's name. Written once, never changed or deleted: a name never moves."""

    format: Literal["strata.version_name.v1"] = "strata.version_name.v1"
    name: str = Field(pattern=r"^[a-z][a-z0-9._-]{0,63}$")
    dataset_id: str = Uuid
    number: PositiveInt
    digest: str = Sha256
    named_at: AwareDatetime


class RunStart(Record):
    """`runs/<run>/start.json`: provenance and configuration, written before the first part."""

    format: Literal["strata.run_start.v1"] = "strata.run_start.v1"
    run_id: str
    started_at: AwareDatetime
    schema_fingerprint: str = Sha256
    provenance: Provenance
    code_version: str
    host: str
    packages: dict[str, str]
    config: dict[str, object]
    resumes_version: PositiveInt | None


Outcome = Literal["complete", "interrupted", "failed"]


class RunEnd(Record):
    """`runs/<run>/end.json`: how the run ended and what it added."""

    format: Literal["strata.run_end.v1"] = "strata.run_end.v1"
    run_id: str
    ended_at: AwareDatetime
    outcome: Outcome
    reason: str | None = None
    n_samples: NonNegativeInt
    n_tokens: NonNegativeInt
    n_quarantined: NonNegativeInt
    size_bytes: NonNegativeInt
    last_version: PositiveInt | None
    seconds: float = Field(ge=0)


class QuarantinedSample(Record):
    """A sample that was not made: a record with a reason, never a gap.

    `source` names where it was read (`sharegpt.jsonl:17`); ids are known as far as it got.
    """

    source: str
    reason: QuarantineReason
    detail: str
    run_id: str
    conversation_id: str | None = None
    prompt_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    sample_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
