"""The service's answers in JSON, as values: what is not known here is left out, so older clients go on."""

from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.record import validation_problems
from service.client.errors import ProtocolError


class Answer(BaseModel):
    """An answer of the service; fields that a newer service adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def read(cls, data: bytes, where: str) -> Self:
        """Read an answer; raises `ProtocolError` with every field that is not as it should be."""
        try:
            return cls.model_validate_json(data, strict=True)
        except ValidationError as error:
            headline = f"{where}: the answer is not a valid {cls.__name__}"
            raise ProtocolError(headline, validation_problems(error)) from error


AnswerT = TypeVar("AnswerT", bound=Answer)


class DatasetAnswer(Answer):
    """A dataset that the key may read; `latest` is its newest version's number."""

    name: str
    latest: int | None


class DatasetsAnswer(Answer):
    """The datasets that the key may read."""

    datasets: tuple[DatasetAnswer, ...]


class VersionAnswer(Answer):
    """A version: how many samples and tokens it holds, under which schema."""

    number: int
    schema_fingerprint: str
    n_samples: int
    n_tokens: int


class VersionsAnswer(Answer):
    """A page of versions, newest first; the next one is of those before `next_before`."""

    versions: tuple[VersionAnswer, ...]
    next_before: int | None = None


class IdentityAnswer(Answer):
    """Which dataset a schema is told of: a name may be given to another one later, an id never is."""

    dataset_id: str


class SampleAnswer(Answer):
    """One sample of a version: what the index knows of it; `n_trained` tokens carry a loss."""

    sample_id: str
    prompt_id: str
    conversation_id: str
    n_tokens: int
    n_trained: int
    splits: tuple[str, ...] = ()


class SamplePage(Answer):
    """A page of samples, and the cursor that the next one is asked for with."""

    samples: tuple[SampleAnswer, ...]
    next_cursor: str | None = None
