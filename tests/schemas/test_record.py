"""Canonical JSON, and what the strict reading of a record refuses."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.errors import RecordError
from schemas.record import Record, canonical_json, sha256_hex
from tests.schemas.values import json_values


class Inner(Record):
    """A nested record."""

    n: int


class Measured(Record):
    """A record with a field of each kind that pydantic would coerce."""

    format: str = "strata.measured.v1"
    n: int
    ratio: float
    name: str
    flag: bool = False
    inner: tuple[Inner, ...] = ()


GOOD = {"format": "strata.measured.v1", "n": 3, "ratio": 0.5, "name": "a", "flag": True, "inner": [{"n": 1}]}


def refused(data: bytes) -> list[tuple[str, str]]:
    with pytest.raises(RecordError, match=r"^x\.json is not a valid Measured") as caught:
        Measured.from_json(data, "x.json")
    return [(problem.where, problem.message) for problem in caught.value.problems]


@settings(deadline=None, max_examples=200)
@given(json_values)
def test_canonical_json_reads_back_equal_and_is_written_again_the_same(value: object) -> None:
    data = canonical_json(value)
    assert json.loads(data) == value
    assert canonical_json(json.loads(data)) == data
    assert data.isascii()


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=4), st.integers(), max_size=6), st.randoms())
def test_the_order_of_keys_does_not_count(value: dict[str, int], random: object) -> None:
    items = list(value.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert canonical_json(dict(items)) == canonical_json(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        pytest.param({"b": 1, "a": {"d": 2, "c": 3}}, b'{"a":{"c":3,"d":2},"b":1}', id="keys"),
        pytest.param("é\u2028\U0001f600\n\x00", rb'"\u00e9\u2028\ud83d\ude00\n\u0000"', id="unicode"),
        pytest.param([0.1, 1.0, -0.0, 1e16, 1e-7, 5e-324], b"[0.1,1.0,-0.0,1e+16,1e-07,5e-324]", id="floats"),
        pytest.param([2**53 + 1, -(2**70)], b"[9007199254740993,-1180591620717411303424]", id="integers"),
        pytest.param([True, False, None, "", {}, []], b'[true,false,null,"",{},[]]', id="plain"),
        pytest.param((1, (2,)), b"[1,[2]]", id="tuples"),
    ],
)
def test_the_form_is_fixed(value: object, data: bytes) -> None:
    assert canonical_json(value) == data


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_what_json_cannot_say_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"deep": [value]})
    with pytest.raises(ValidationError, match="finite"):
        Measured(n=1, ratio=value, name="a")
    data = canonical_json(GOOD).replace(b"0.5", json.dumps(value).encode())
    assert [where for where, _ in refused(data)] == ["ratio"]


def test_a_record_reads_back_as_it_was() -> None:
    record = Measured.from_json(canonical_json(GOOD), "x.json")
    assert record.to_json() == canonical_json(GOOD)
    assert Measured.from_json(record.to_json(), "x.json") == record


def test_a_record_never_changes() -> None:
    record = Measured.from_json(canonical_json(GOOD), "x.json")
    with pytest.raises(ValidationError, match="frozen"):
        record.n = 4  # type: ignore[misc]


def test_python_values_may_be_given_as_toml_gives_them() -> None:
    assert Measured.model_validate({**GOOD, "inner": [{"n": 1}]}).inner == (Inner(n=1),)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"n": "3"}, ("n", "expected a valid integer, got '3'"), id="int-as-text"),
        pytest.param({"n": 3.0}, ("n", "expected a valid integer, got 3.0"), id="int-as-float"),
        pytest.param({"n": True}, ("n", "expected a valid integer, got True"), id="int-as-bool"),
        pytest.param({"n": None}, ("n", "expected a valid integer, got None"), id="int-as-null"),
        pytest.param({"ratio": "0.5"}, ("ratio", "expected a valid number, got '0.5'"), id="float-as-text"),
        pytest.param({"ratio": True}, ("ratio", "expected a valid number, got True"), id="float-as-bool"),
        pytest.param({"name": 3}, ("name", "expected a valid string, got 3"), id="text-as-int"),
        pytest.param({"flag": 1}, ("flag", "expected a valid boolean, got 1"), id="bool-as-int"),
        pytest.param({"flag": "yes"}, ("flag", "expected a valid boolean, got 'yes'"), id="bool-as-text"),
        pytest.param(
            {"inner": [{"n": "1"}]}, ("inner.0.n", "expected a valid integer, got '1'"), id="nested"
        ),
        pytest.param({"more": [1]}, ("more", "expected no such field, got [1]"), id="unknown"),
        pytest.param(
            {"inner": [{"n": 1, "m": 2}]}, ("inner.0.m", "expected no such field, got 2"), id="nested-unknown"
        ),
    ],
)
def test_a_wrong_type_is_refused_and_never_coerced(
    change: dict[str, object], problem: tuple[str, str]
) -> None:
    assert refused(canonical_json({**GOOD, **change})) == [problem]


def test_a_whole_number_is_a_valid_float() -> None:
    assert Measured.from_json(canonical_json({**GOOD, "ratio": 2}), "x.json").ratio == 2.0


@pytest.mark.parametrize("field", ["n", "ratio", "name"])
def test_a_missing_field_is_refused(field: str) -> None:
    data = canonical_json({key: value for key, value in GOOD.items() if key != field})
    assert refused(data) == [(field, "expected this field, got none")]


def test_a_record_that_does_not_say_its_format_is_refused() -> None:
    data = canonical_json({key: value for key, value in GOOD.items() if key != "format"})
    assert refused(data) == [("format", "expected 'strata.measured.v1', got no format")]


def test_every_problem_is_said_at_once() -> None:
    assert [where for where, _ in refused(b'{"n":"3","inner":[{"n":1.5},{}],"more":1,"format":"x"}')] == [
        "n",
        "ratio",
        "name",
        "inner.0.n",
        "inner.1.n",
        "more",
    ]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff", canonical_json(GOOD)[:-1], canonical_json(GOOD) + b"}"],
    ids=["empty", "open", "list", "null", "text", "binary", "cut", "trailing"],
)
def test_what_is_no_json_object_is_refused_by_the_files_name(data: bytes) -> None:
    assert refused(data)


def test_a_long_value_is_shortened_in_the_message() -> None:
    ((_, message),) = refused(canonical_json({**GOOD, "n": "9" * 1000}))
    assert len(message) < 150
    assert message.endswith("...")


def test_sha256_hex_takes_bytes_and_views() -> None:
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_hex(b"abc") == sha256_hex(memoryview(b"abc")) == expected
