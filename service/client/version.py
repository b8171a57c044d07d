"""One version of one dataset, as a trainer holds it: immutable, so everything that it answers stays true."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple
from urllib.parse import quote, urlencode

import numpy as np
from numpy.typing import NDArray

from schemas.boundary import FINAL_NORMED
from schemas.errors import RecordError, SchemaError
from schemas.final_norm import FinalNorm
from schemas.problem import Problem
from schemas.sample import ID_PATTERN
from schemas.schema import Schema
from schemas.wiring import Wiring
from service.client.answers import IdentityAnswer, SampleAnswer, SamplePage
from service.client.body import Asked, Shape, receive_table, shapes_of
from service.client.derived import can_be_made, fetched, with_normed
from service.client.errors import NotFoundError, ProtocolError
from service.client.rows import Out, Rows
from service.client.session import Mode, Session
from service.client.stack import MakeStates, Stack, Stackings, new_states
from service.client.transport import Request
from service.wire.locations import SampleLocation
from service.wire.names import SCHEMA_HEADER, WIRING_HEADER

_SAMPLE_ID = re.compile(ID_PATTERN)


class OrderTable(NamedTuple):
    """The samples of a selection in ascending order of their ids, all that an epoch order is made of.

    `sample_ids` are `[n, 32]` uint8 as `service.wire.order.epoch_order` takes them, `n_tokens` and
    `n_trained` `[n]` int32.
    """

    sample_ids: NDArray[np.uint8]
    n_tokens: NDArray[np.int32]
    n_trained: NDArray[np.int32]


@dataclass(frozen=True)
class Version:
    """Version `number` of `dataset`, under `schema`; every request says the fingerprint and the wiring.

    Where `final` is stored and the target's norm is kept, `final_normed` is made of it as it is asked for.
    With a wiring `names` left out are the wiring's tensors and the token columns, else everything there is.
    Rows are as they are stored, unshifted, also for a wiring whose trainer leaves the shift to who hands it
    samples: `Client.stream` moves tokens, this does not. `notes` are what a person should know of dataset and
    wiring. Safe for threads, for forked children, and to be pickled.
    """

    dataset: str
    number: int
    schema: Schema
    wiring: Wiring | None
    notes: tuple[Problem, ...] = ()
    session: Session = field(repr=False, compare=False, kw_only=True)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tensors and token columns that are fetched when no names are given."""
        tensors = self.wiring.tensors if self.wiring is not None else self.schema.names
        return (*tensors, *(column.name for column in self.schema.token_columns))

    @property
    def mode(self) -> Mode | None:
        """How samples are fetched: `http` or `direct`; `None` until the first fetch has found out."""
        return self.session.mode

    @cached_property
    def dataset_id(self) -> str:
        """The dataset's own id, which cards name it by."""
        return IdentityAnswer.read(self._ask("/schema"), f"{self._path}/schema").dataset_id

    @cached_property
    def final_norm(self) -> FinalNorm | None:
        """The target's final norm, where `final_normed` can be made by it; asked for when it is first needed.

        Raises `ProtocolError` where the service tells another target's.
        """
        if not can_be_made(self.schema):
            return None
        path = f"{self._path}/final_norm"
        request = Request("GET", path, {SCHEMA_HEADER: self._headers[SCHEMA_HEADER]})
        try:
            data = self.session.transport.json(request)[0]
        except NotFoundError:
            return None  # not kept, or a service that knows of no norms
        try:
            norm = FinalNorm.from_json(data, path)
        except RecordError as error:
            raise ProtocolError(error.headline, error.problems) from error
        if problems := norm.problems(self.schema.target):
            raise ProtocolError(f"{path}: not the final norm of the dataset's target", problems)
        return norm

    def samples(
        self, *, split: str | None = None, min_tokens: int = 0, min_trained: int = 0, page: int = 1000
    ) -> Iterator[SampleAnswer]:
        """Yield the samples in ascending order of their ids, asked for page by page."""
        selection = _selection(split, min_tokens, min_trained)
        cursor: str | None = None
        while True:
            query = {**selection, "limit": str(page), **({"cursor": cursor} if cursor else {})}
            data = self._ask("/samples", query)
            found = SamplePage.read(data, f"{self._path}/samples")
            yield from found.samples
            cursor = found.next_cursor
            if cursor is None:
                return

    def sample(self, sample_id: str) -> SampleAnswer:
        """Return what the index knows of a sample; raises `NotFoundError` when there is none of that id."""
        path = f"/samples/{quote(sample_id, safe='')}"
        return SampleAnswer.read(self._ask(path), f"{self._path}{path}")

    def tensors(
        self,
        sample_id: str,
        names: Sequence[str] | None = None,
        tokens: slice | None = None,
        *,
        out: Out = None,
    ) -> Rows:
        """Return a sample's rows, or those of a window of its tokens; every byte's checksum is compared.

        `out`, a uint8 buffer or what makes one, is filled; `Rows.buffer` is the part that was used. Raises
        `SchemaError` for unknown names, `RefusedError` when the dataset does not fit the wiring,
        `InvalidError` for a window outside of the sample, `ChecksumError` (or `DamagedError`, in direct mode)
        that names the tensor.
        """
        return self._fetched((sample_id,), names, tokens, out, is_batch=False)

    def batch(
        self, sample_ids: Sequence[str], names: Sequence[str] | None = None, *, out: Out = None
    ) -> Rows:
        """Return several samples' rows end to end, in the order asked; else as `tensors`."""
        return self._fetched(tuple(sample_ids), names, None, out, is_batch=True)

    def stack(
        self,
        sample_id: str,
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> Stack:
        """Return a sample's tensors as one array `[T, K, H]`, in the order of `names`, and token columns.

        Each byte is written once, into the array that `out` makes. Raises as `tensors`, and `SchemaError` for
        tensors that differ in dtype or width.
        """
        (stack,) = self.stacks((sample_id,), names, columns, out=out)
        return stack

    def stacks(
        self,
        sample_ids: Sequence[str],
        names: Sequence[str],
        columns: Sequence[str] = ("input_ids",),
        *,
        out: MakeStates = new_states,
    ) -> list[Stack]:
        """Return several samples as `stack` does each, by one request where it takes one.

        `out` makes them in the order asked, all of them once more where bytes are asked for again.
        """
        many = len(sample_ids) > 1
        asked = self._asked(tuple(sample_ids), (*names, *columns), None, is_batch=many)
        stacking = self._stackings.of(names, columns, partial(self._norm_for, names))
        stacks = [stacking.one(out) for _ in sample_ids]
        self.session.fetch_planes(asked, self._headers, [each.planes for each in stacks])
        return [each.done() for each in stacks]

    def locations(
        self, sample_ids: Sequence[str], names: Sequence[str] | None = None
    ) -> list[SampleLocation]:
        """Return where samples lie: path or presigned URL, offset, length and checksums of each array.

        They are kept for direct mode: asking for those of many samples at once saves a request for each.
        """
        known = self.session.locate(self._asked(tuple(sample_ids), names, None, is_batch=True), self._headers)
        return [
            SampleLocation(sample_id=one.sample_id, n_tokens=one.n_tokens, arrays=tuple(one.arrays.values()))
            for one in known
        ]

    def order_table(
        self, *, split: str | None = None, min_tokens: int = 0, min_trained: int = 0
    ) -> OrderTable:
        """Return the samples of a selection by id, with their lengths."""
        query = urlencode(_selection(split, min_tokens, min_trained))
        request = Request("GET", f"{self._path}/order/table" + (f"?{query}" if query else ""), self._headers)
        columns = {"sample_ids": ("uint8", (32,)), "n_tokens": ("int32", ()), "n_trained": ("int32", ())}
        found = self.session.send_checked(request, partial(receive_table, columns=columns))
        return OrderTable(
            found["sample_ids"].astype(np.uint8, copy=False),
            found["n_tokens"].astype(np.int32, copy=False),
            found["n_trained"].astype(np.int32, copy=False),
        )

    def _fetched(
        self,
        sample_ids: tuple[str, ...],
        names: Sequence[str] | None,
        tokens: slice | None,
        out: Out,
        *,
        is_batch: bool,
    ) -> Rows:
        wanted = self.names if names is None else tuple(dict.fromkeys(names))
        asked = self._asked(sample_ids, wanted, tokens, is_batch=is_batch)
        rows = self.session.fetch(asked, self._headers, out)
        return with_normed(rows, wanted, self._norm_for(wanted), self.schema)

    def _norm_for(self, names: Sequence[str]) -> FinalNorm | None:
        """Return the norm where something that is asked for is made by it."""
        return self.final_norm if FINAL_NORMED in names and can_be_made(self.schema) else None

    @property
    def _path(self) -> str:
        return f"/v1/datasets/{quote(self.dataset, safe='')}/versions/{self.number}"

    @cached_property
    def _headers(self) -> dict[str, str]:
        # A fingerprint is a hash of the whole schema: taken once, not with each request.
        return request_headers(self.schema, self.wiring)

    def _ask(self, path: str, query: dict[str, str] | None = None) -> bytes:
        request = Request(
            "GET", f"{self._path}{path}" + (f"?{urlencode(query)}" if query else ""), self._headers
        )
        return self.session.transport.json(request)[0]

    def _asked(
        self,
        sample_ids: tuple[str, ...],
        names: Sequence[str] | None,
        tokens: slice | None,
        *,
        is_batch: bool,
    ) -> Asked:
        wanted = self.names if names is None else tuple(dict.fromkeys(names))
        wanted = fetched(wanted, self._norm_for(wanted))
        shapes = self._shapes
        wrong = not wanted or not sample_ids or not shapes.keys() >= {*wanted}
        if wrong or not all(map(_SAMPLE_ID.fullmatch, sample_ids)):
            raise self._no_such(sample_ids, wanted)
        place = self.dataset, self.number, self._headers[SCHEMA_HEADER], shapes
        return Asked(*place, sample_ids, wanted, tokens, is_batch)

    @cached_property
    def _stackings(self) -> Stackings:
        return Stackings(self.schema)

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        return shapes_of(self.schema)

    def _no_such(self, sample_ids: Sequence[str], names: Sequence[str]) -> SchemaError:
        expected = f"expected one of {', '.join(self._shapes)}"
        problems = [
            Problem(where="names", kind="tensor_name", message=f"{expected}, got {name!r}")
            for name in names
            if name not in self._shapes
        ]
        problems += [
            Problem(where="sample_id", kind="sample", message=f"expected 64 hex digits, got {sample_id!r}")
            for sample_id in sample_ids
            if _SAMPLE_ID.fullmatch(sample_id) is None
        ]
        if not names or not sample_ids:
            message = f"expected at least one sample and one name, got {len(sample_ids)} and {len(names)}"
            problems.append(Problem(where="request", kind="empty", message=message))
        return SchemaError(f"{self.dataset}@{self.number} has no such thing", problems)


def request_headers(schema: Schema, wiring: Wiring | None) -> dict[str, str]:
    """Return what a request says it means: the schema's fingerprint, and the wiring where there is one."""
    headers = {SCHEMA_HEADER: schema.fingerprint}
    if wiring is not None:
        headers[WIRING_HEADER] = wiring.to_json().decode("ascii")
    return headers


def _selection(split: str | None, min_tokens: int, min_trained: int) -> dict[str, str]:
    asked = {"split": split, "min_tokens": min_tokens or None, "min_trained": min_trained or None}
    return {name: str(value) for name, value in asked.items() if value is not None}
