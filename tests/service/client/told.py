"""One sample as a service would send it, right or changed, and a client that asks for it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from datagen.store.checksum import crc32c
from datagen.store.sample_data import SampleData
from schemas.errors import StrataError
from service.client.client import Client
from service.client.transport import Patience
from service.client.version import Version
from service.wire.frame import Entry, build_frame
from tests.builders import random_sample, tiny_schema
from tests.service.client.misbehaving import (
    Action,
    Misbehaving,
    answer_bytes,
    answering,
    misbehaving,
    version_headers,
)

SCHEMA = tiny_schema()
SAMPLE = random_sample(SCHEMA, 70, 0)
NAMES = ("layer2", "input_ids")
JSON = answering(200, b'{"datasets": [{"name": "demo", "latest": 1}]}')


def client_of(server: Misbehaving, **given: Any) -> Client:
    client = Client(server.url, **{"timeout": 5.0, "retries": 2, "direct": False, **given})
    patience = Patience(client.session.settings.patience.retries, first_pause=0.001)
    client.session.transport._patience = patience
    return client


def version_of(client: Client) -> Version:
    return Version("demo", 1, SCHEMA, None, session=client.session)


def array_bytes(sample: SampleData) -> dict[str, bytes]:
    return {"layer2": sample.tensors["layer2"].tobytes(), "input_ids": sample.tokens["input_ids"].tobytes()}


def body_of(change: Callable[[dict[str, Any]], None] | None = None, tail: bytes = b"") -> bytes:
    """Return a right body of the sample's `NAMES`, its header changed."""
    data = array_bytes(SAMPLE)
    entries = [Entry("input_ids", "int32", (70,)), Entry("layer2", "bfloat16", (70, 8))]
    frame = build_frame(entries, {name: crc32c(data[name]) for name in data}, {})
    payload = b"".join(data[entry.name] for entry in frame.entries)
    if change is None:
        return frame.head + payload + tail
    header = json.loads(frame.head[8:])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload + tail


def sent(body: bytes, **headers: str) -> Action:
    return answering(
        200, body, {**version_headers(SCHEMA), **{k.replace("_", "-"): v for k, v in headers.items()}}
    )


RIGHT = sent(body_of())


def fetched(actions: Sequence[Action], **given: Any) -> Misbehaving:
    """Fetch the sample and compare it; return what the server saw."""
    with misbehaving(actions) as server, client_of(server, **given) as client:
        rows = version_of(client).tensors(SAMPLE.sample_id, NAMES)
    for name, expected in array_bytes(SAMPLE).items():
        assert {**rows.tensors, **rows.tokens}[name].tobytes() == expected
    return server


def refused(
    actions: Sequence[Action], error: type[StrataError], **given: Any
) -> tuple[StrataError, Misbehaving]:
    with misbehaving(actions) as server, client_of(server, **given) as client:
        with pytest.raises(error) as caught:
            version_of(client).tensors(SAMPLE.sample_id, NAMES)
        assert type(caught.value) is error
    return caught.value, server


RIGHT_BYTES = answer_bytes(200, body_of(), version_headers(SCHEMA))
