"""What is asked of a dataset's management, and what it answers: the same over HTTP and on the console."""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from schemas.problem import Problem
from schemas.record import Record
from schemas.records import Operation, SplitRule

WEEK_SECONDS = 7 * 86400
MAX_LISTED = 1000
MAX_VERSION = 99_999_999

SampleId = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
VersionText = Annotated[str, Field(pattern=r"^([1-9][0-9]{0,7}|[a-z][a-z0-9._-]{0,63})$")]
Grace = Annotated[float, Field(ge=0, le=10 * 366 * 86400, description="seconds")]


class Change(Record):
    """What every change may say: the version that its caller looked at, and whether it is only a trial."""

    expected_version: PositiveInt | None = Field(
        default=None,
        le=MAX_VERSION,
        description="refuse where another version is the newest; the same as `If-Match`",
    )
    dry_run: bool = Field(default=False, description="say what would be, and change nothing")


class SplitShare(Record):
    """A split and its share of the conversations."""

    split: Name
    share: float


class SplitChange(Change):
    """Set a split rule; in the order of `shares`, each takes its part of the conversations' hashes."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"rule": "default", "shares": [{"split": "train", "share": 0.9}]}]}
    )

    rule: Name = "default"
    seed: int = Field(default=0, ge=-(2**63), lt=2**63)
    shares: tuple[SplitShare, ...] = Field(max_length=100)
    only: bool = Field(default=False, description="remove every other rule")

    def as_rule(self) -> SplitRule:
        """Return the rule as a version record has it."""
        shares = tuple((given.split, given.share) for given in self.shares)
        return SplitRule(name=self.rule, seed=self.seed, fractions=shares)


class DropChange(Change):
    """Drop samples: by their ids, by their conversations, or all that are shorter than some tokens."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"shorter_than": 20, "dry_run": True}]})

    sample_ids: tuple[SampleId, ...] | None = None
    conversation_ids: tuple[str, ...] | None = None
    shorter_than: PositiveInt | None = Field(default=None, lt=2**31, description="tokens")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [
            name
            for name in ("sample_ids", "conversation_ids", "shorter_than")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            got = ", ".join(given) or "none"
            raise ValueError(f"expected one of sample_ids, conversation_ids and shorter_than, got {got}")
        if () in (self.sample_ids, self.conversation_ids):
            raise ValueError(f"expected at least one of {given[0]}, got none")
        return self


class RollbackChange(Change):
    """List again what an older version lists, its split rules too."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"version": "1"}]})

    version: VersionText


class NameChange(Record):
    """Give a version a name, for ever; without `version` the newest one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "paper-v1", "version": "1"}]})

    name: str = Field(max_length=128)
    version: VersionText | None = None


class CondemnChange(Change):
    """Condemn the parts that none of the newest `keep_versions` versions, and none with a name, needs."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keep_versions": 3, "dry_run": True}]})

    keep_versions: PositiveInt = Field(le=MAX_VERSION)
    grace_seconds: Grace = WEEK_SECONDS
    keep_named: bool = True


class SweepChange(Record):
    """Remove the parts that were condemned longer than the grace period ago."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dry_run": True}]})

    grace_seconds: Grace = WEEK_SECONDS
    keep_named: bool = True
    dry_run: bool = Field(default=False, description="say what would go, and remove nothing")


class Changed(Record):
    """What a change came to: the newest version, and whether the change made it (in a dry run: would)."""

    dataset: str
    operation: Operation
    changed: bool
    dry_run: bool
    version: PositiveInt
    n_samples: NonNegativeInt
    n_tokens: NonNegativeInt
    size_bytes: NonNegativeInt


class ShareFound(Record):
    """What of a version falls in a split; without a name, what falls in none."""

    split: str | None
    n_samples: NonNegativeInt
    n_tokens: NonNegativeInt
    n_conversations: NonNegativeInt


class SplitChanged(Changed):
    """The rule as it stands, and what falls in each of its splits."""

    rule: SplitRule
    shares: tuple[ShareFound, ...]


class DropChanged(Changed):
    """How many samples went, and how many had gone before: those change nothing."""

    n_dropped: NonNegativeInt
    n_dropped_tokens: NonNegativeInt
    n_gone_before: NonNegativeInt


class RollbackChanged(Changed):
    """Which version's samples are listed again."""

    to_version: PositiveInt


class Named(Record):
    """A version's name; `changed` says whether it is new."""

    dataset: str
    name: str
    version: PositiveInt
    digest: str
    named_at: AwareDatetime
    changed: bool


class NameList(Record):
    """Every name of a dataset's versions, sorted."""

    dataset: str
    names: tuple[Named, ...]


class Collected(Record):
    """What a step of garbage collection took (in a dry run: would take), and why it left what it left."""

    dataset: str
    step: Literal["condemn", "sweep"]
    changed: bool
    dry_run: bool
    version: PositiveInt
    size_bytes: NonNegativeInt
    parts: tuple[str, ...]
    litter: tuple[str, ...]
    left: tuple[Problem, ...]


class VersionFacts(Record):
    """A version in figures; bytes of its `n_condemned_parts` may be gone."""

    number: PositiveInt
    names: tuple[str, ...]
    operation: Operation
    created_at: AwareDatetime
    run_id: str | None
    schema_fingerprint: str
    n_samples: NonNegativeInt
    n_tokens: NonNegativeInt
    size_bytes: NonNegativeInt
    n_quarantined: NonNegativeInt
    n_condemned_parts: NonNegativeInt
    splits: tuple[SplitRule, ...]


class Listed(Record):
    """Samples that only one of two versions has: how many, and a page of their ids in order."""

    n_samples: NonNegativeInt
    n_tokens: NonNegativeInt
    sample_ids: tuple[str, ...]
    next_cursor: str | None = Field(description="`cursor` of the next page; none after the last")


class Comparison(Record):
    """Two versions: `removed` are samples of `first` alone, `added` of `second` alone, `kept` of both."""

    dataset: str
    first: VersionFacts
    second: VersionFacts
    added: Listed
    removed: Listed
    n_kept: NonNegativeInt
    n_remade: NonNegativeInt = Field(description="of those kept, how many lie elsewhere: made again since")
    same_schema: bool
    same_splits: bool
    runs: tuple[str, ...] = Field(description="those that committed after the older of both, in order")
    quarantined: dict[str, int] = Field(description="by reason, what `second` has more than `first`")
