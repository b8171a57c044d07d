"""The client: one service, a key, and how long and how often it is asked."""

import json
from dataclasses import replace
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, cast
from urllib.parse import quote

from schemas.errors import RecordError
from schemas.record import canonical_json
from schemas.schema import Schema
from service.client.answers import (
    AnswerT,
    DatasetAnswer,
    DatasetsAnswer,
    VersionAnswer,
    VersionsAnswer,
)
from service.client.asked import Asked, settle
from service.client.errors import ProtocolError
from service.client.options import Options
from service.client.options import check as check_options
from service.client.question import CheckAnswer, Question, body_of
from service.client.session import Direct, Mode, Session, Settings
from service.client.transport import USUAL_RETRIES, Patience, Request
from service.client.version import Version
from service.wire.names import SCHEMA_HEADER, VERSION_HEADER

if TYPE_CHECKING:
    from service.client.stream import Stream

LATEST = "latest"


class Client:
    """A service at `url`, asked with an API key, without a proxy between.

    `timeout` and `connect_timeout` are seconds without a byte, and until connected. What may go well next
    time is asked again, up to `retries` times with growing pauses, about 12 s in all: a restart is waited
    for. `direct` says whether files are read where they lie, and `check` whether every checksum is compared.
    Safe for threads, for forked children (each opens its own connections) and to be pickled. Raises
    `ValueError` for a URL or a key that is none.

        client = Client("http://127.0.0.1:8350")
        version = client.version("demo", wiring=wiring)
        rows = version.tensors(sample_id, tokens=slice(0, 64))
        rows.tensors["final"], rows.tokens["input_ids"]
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        retries: int = USUAL_RETRIES,
        direct: Direct = "auto",
        check: bool = True,
    ) -> None:
        patience = Patience(retries)
        self.session = Session(Settings(url, key, timeout, connect_timeout, patience, direct, check))

    def __repr__(self) -> str:
        return f"Client({self.session.settings.url!r})"

    @property
    def mode(self) -> Mode | None:
        """How samples are fetched: `http` or `direct`; `None` until the first fetch has found out."""
        return self.session.mode

    def datasets(self) -> tuple[DatasetAnswer, ...]:
        """Return the datasets that the key may read."""
        return self._ask(DatasetsAnswer, "/v1/datasets").datasets

    def versions(self, dataset: str) -> tuple[VersionAnswer, ...]:
        """Return the versions of a dataset, newest first."""
        path = f"/v1/datasets/{quote(dataset, safe='')}/versions"
        page = self._ask(VersionsAnswer, path)
        found = [*page.versions]
        while page.next_before is not None:
            page = self._ask(VersionsAnswer, f"{path}?before={page.next_before}")
            found += page.versions
        return tuple(found)

    def schema(self, dataset: str, version: int | str = LATEST) -> Schema:
        """Return a version's schema."""
        return self._schema(dataset, version)[0]

    def version(self, dataset: str, version: int | str = LATEST, *, wiring: Asked | None = None) -> Version:
        """Return a version to fetch from, by number, name or `latest`, which is resolved here once.

        Raises `NotFoundError` when there is none, and `RefusedError` with every problem when its schema does
        not have what `wiring` takes, when its target is not the card's, or for a bare library name.
        """
        schema, number = self._schema(dataset, version)
        opened = Version(dataset, number, schema, None, session=self.session)
        if wiring is None:
            return opened
        settled = settle(wiring, schema, lambda: opened.final_norm)
        return replace(opened, wiring=settled.wiring, notes=settled.notes)

    def stream(
        self, dataset: str, version: int | str = LATEST, *, wiring: Asked, **options: Unpack[Options]
    ) -> "Stream":
        """Return a torch `IterableDataset` of a version's batches, as a wiring's trainer takes them.

        Raises `RefusedError` with every problem when the dataset does not have what the wiring takes, or the
        wiring is a bare library name, and `StreamError` when the options do not go together or not with the
        samples: before anything is fetched. Loads torch; nothing else of the client does.
        """
        check_options(options)
        opened = self.version(dataset, version)
        settled = settle(wiring, opened.schema, lambda: opened.final_norm)
        stream = import_module("service.client.stream").Stream
        return cast("Stream", stream(replace(opened, wiring=settled.wiring), settled, options))

    def check(self, **question: Unpack[Question]) -> CheckAnswer:
        """Return what the service's checks find; that things do not fit is an answer here, and no error.

        Raises `InvalidError` when the question says too little to compare, or too much.
        """
        request = Request("POST", "/v1/check", body=body_of(question))
        return CheckAnswer.read(self.session.transport.json(request)[0], "/v1/check")

    def close(self) -> None:
        """Close the connections that are idle; the next request opens new ones."""
        self.session.transport.connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, answer: type[AnswerT], path: str) -> AnswerT:
        return answer.read(self.session.transport.json(Request("GET", path))[0], path)

    def _schema(self, dataset: str, version: int | str) -> tuple[Schema, int]:
        """Return a schema and the number of the version that has it, which the answer's headers say."""
        path = f"/v1/datasets/{quote(dataset, safe='')}/versions/{quote(str(version), safe='')}/schema"
        data, headers = self.session.transport.json(Request("GET", path))
        number = headers.get(VERSION_HEADER, "")
        if not number.isascii() or not number.isdigit():
            raise ProtocolError(f"{path}: expected the version's number in {VERSION_HEADER}, got {number!r}")
        schema = _schema_from(data, path)
        if headers.get(SCHEMA_HEADER) != schema.fingerprint:
            got = headers.get(SCHEMA_HEADER)
            raise ProtocolError(f"{path}: expected fingerprint {schema.fingerprint}, got {got}")
        return schema, int(number)


def _schema_from(data: bytes, where: str) -> Schema:
    try:
        content = json.loads(data)
        return Schema.from_json(canonical_json(content["declared"]), where)
    except RecordError as error:
        raise ProtocolError(error.headline, error.problems) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProtocolError(f"{where}: expected a schema, got {data[:200]!r}") from error
