"""From the settings to a stream of conversations, over every source and format."""

from collections.abc import Iterator
from itertools import islice

from datagen.prompts.conversation import Conversation
from datagen.prompts.errors import PromptError, RefusedRecord
from datagen.prompts.files import Broken, Located, file_records
from datagen.prompts.formats import conversation
from datagen.prompts.hub import dataset_records
from datagen.prompts.locate import Source, locate
from datagen.prompts.settings import PromptSettings
from datagen.prompts.stats import PromptStats
from schemas.problem import Problem
from schemas.records import QuarantinedSample


def read(settings: PromptSettings, stats: PromptStats) -> Iterator[Conversation | QuarantinedSample]:
    """Yield every record of the sources in their order: a conversation, or why it is none.

    Raises `PromptError` at once when a source is missing, and at the end when no source held a record.
    """
    return _read(locate(settings), settings, stats)


def _read(
    sources: tuple[Source, ...], settings: PromptSettings, stats: PromptStats
) -> Iterator[Conversation | QuarantinedSample]:
    records = (located for source in sources for located in _records(source, settings.split))
    for where, record in islice(records, settings.limit):
        stats.read += 1
        if isinstance(record, Broken):
            yield stats.quarantine("unreadable_record", record.detail, where)
            continue
        try:
            yield conversation(record, where, settings)
        except RefusedRecord as refused:
            yield stats.quarantine(refused.reason, refused.detail, where)
    if not stats.read:
        problems = [
            Problem(where=source.path, kind="empty", message="expected records, got none")
            for source in sources
        ]
        raise PromptError("there are no prompts", problems)


def _records(source: Source, split: str | None) -> Iterator[Located]:
    if source.kind in {"hub", "dataset_folder"}:
        yield from dataset_records(source, split)
        return
    try:
        yield from file_records(source)
    except OSError as error:
        problem = Problem(where=source.path, kind="unreadable", message=f"cannot be read: {error}")
        raise PromptError("the prompts cannot be read", [problem]) from error
