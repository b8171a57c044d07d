"""Identity of samples and prompts against an oracle that shares no code with it, and published vectors."""

import hashlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.sample import prompt_id, sample_id, uint32_bytes
from tests.schemas.values import GOLDEN, json_values, texts

token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=40)
VECTORS: dict[str, Any] = json.loads((GOLDEN / "identities.json").read_text())


@settings(deadline=None, max_examples=100)
@given(token_ids)
def test_a_sample_id_is_the_hash_of_its_ids_as_little_endian_uint32(ids: list[int]) -> None:
    packed = struct.pack(f"<{len(ids)}I", *ids)
    assert uint32_bytes(ids) == packed
    assert sample_id(ids) == hashlib.sha256(b"strata.sample.v1\x00" + packed).hexdigest()


@settings(deadline=None, max_examples=60)
@given(token_ids, st.dictionaries(texts, json_values, max_size=3))
def test_a_prompt_id_is_the_hash_of_the_request_and_its_ids(
    ids: list[int], request: dict[str, object]
) -> None:
    said = json.dumps(request, sort_keys=True, separators=(",", ":")).encode()
    packed = struct.pack(f"<{len(ids)}I", *ids)
    expected = hashlib.sha256(b"strata.prompt.v1\x00" + said + b"\x00" + packed).hexdigest()
    assert prompt_id(iter(ids), request) == expected


@pytest.mark.parametrize("vector", VECTORS["samples"], ids=lambda vector: vector["id"])
def test_published_sample_ids(vector: dict[str, Any]) -> None:
    assert sample_id(vector["token_ids"]) == vector["sample_id"]


@pytest.mark.parametrize("vector", VECTORS["prompts"], ids=lambda vector: vector["id"])
def test_published_prompt_ids(vector: dict[str, Any]) -> None:
    assert prompt_id(vector["token_ids"], vector["request"]) == vector["prompt_id"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20), st.data())
def test_order_values_and_length_count(ids: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ids) - 1))
    changed = [*ids[:at], ids[at] ^ 1, *ids[at + 1 :]]
    assert len({sample_id(ids), sample_id(changed), sample_id([*ids, 0]), sample_id(ids[:-1])}) == 4
    if ids != ids[::-1]:
        assert sample_id(ids) != sample_id(ids[::-1])


def test_the_order_of_a_requests_keys_does_not_count_and_its_values_do() -> None:
    request: dict[str, object] = {"mode": "generate", "seed": 1}
    assert prompt_id([1], request) == prompt_id([1], {"seed": 1, "mode": "generate"})
    assert prompt_id([1], request) != prompt_id([1], {**request, "seed": 2})
    assert prompt_id([1], {"mode": "capture"}) != sample_id([1])


@pytest.mark.parametrize("ids", [[-1], [2**32], [0, 2**64]], ids=["negative", "2**32", "2**64"])
def test_ids_out_of_range_are_refused(ids: list[int]) -> None:
    with pytest.raises(OverflowError):
        sample_id(ids)


@pytest.mark.parametrize("ids", [[1.0], ["1"], [None]], ids=["float", "text", "none"])
def test_what_is_no_integer_is_refused(ids: list[Any]) -> None:
    with pytest.raises(TypeError):
        sample_id(ids)
