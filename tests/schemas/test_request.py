"""What a request over HTTP claims, against a dataset's schema: every departure at once, as data."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.card import Card
from schemas.consumers.declared import declared
from schemas.errors import RecordError
from schemas.problem import Problem
from schemas.request import MAX_WIRING_BYTES, read_wiring, request_problems
from schemas.schema import Schema
from schemas.wiring import TargetRole, Wiring
from tests.builders import tiny_target
from tests.schemas.values import json_values

TARGET = tiny_target(61)
SCHEMA = Schema.declare(TARGET, ["layer3", "layer31", "layer59", "final"], "bfloat16")
WIRING = Wiring(
    consumer="mine",
    kind="trainer",
    n_layers=61,
    fc=("layer3", "layer31", "layer59"),
    target=TargetRole(tensor="final", applies_norm=True),
    token_shift="consumer",
)
CARD = Card(target=TARGET, wiring=WIRING)
WRITTEN = WIRING.model_dump(mode="json")


def errors(found: tuple[Problem, ...]) -> dict[str, Problem]:
    assert all(problem.repair for problem in found)
    return {problem.where: problem for problem in found if problem.severity == "error"}


def refused(content: object) -> tuple[Problem, ...]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(RecordError) as caught:
        read_wiring(data, TARGET)
    assert caught.value.problems
    assert all(problem.repair for problem in caught.value.problems)
    return caught.value.problems


def test_what_is_declared_is_satisfied() -> None:
    read = read_wiring(json.dumps(WRITTEN).encode(), TARGET)
    assert read == WIRING
    assert request_problems(SCHEMA, fingerprint=SCHEMA.fingerprint, wiring=read, card=CARD) == ()
    assert request_problems(SCHEMA) == ()


def test_another_fingerprint_is_told_by_both_digests() -> None:
    (problem,) = request_problems(SCHEMA, fingerprint="0" * 64)
    assert (problem.where, problem.severity) == ("schema_fingerprint", "error")
    assert (problem.expected, problem.got) == (SCHEMA.fingerprint, "0" * 64)
    assert "does not say which" in problem.message
    assert len(request_problems(SCHEMA, fingerprint="x" * 10**6)[0].model_dump_json()) < 2000


def test_all_that_is_wrong_is_told_at_once_by_role_and_slot() -> None:
    asked = WIRING.model_copy(
        update={
            "fc": ("embed", "layer31", "layer3"),
            "target": TargetRole(tensor="layer59", applies_norm=True),
        }
    )
    found = request_problems(SCHEMA, fingerprint="0" * 64, wiring=asked, card=CARD)
    assert errors(found).keys() == {"schema_fingerprint", "fc", "fc[0]", "fc[2]", "target"}
    missing = next(problem for problem in found if problem.kind == "missing")
    assert (missing.where, missing.role, missing.slot, missing.expected) == ("fc[0]", "fc", 0, "embed")
    slot = next(problem for problem in found if problem.kind == "slot" and problem.slot == 2)
    assert (slot.role, slot.expected, slot.got) == ("fc", "layer59", "layer3")
    target = next(problem for problem in found if problem.role == "target")
    assert (target.expected, target.got) == ("final", "layer59")


def test_a_card_alone_stands_for_its_wiring_and_names_another_target() -> None:
    assert request_problems(SCHEMA, card=CARD) == ()
    narrow = Schema.declare(TARGET, ["layer3", "final"], "bfloat16")
    assert errors(request_problems(narrow, card=CARD)).keys() == {"fc[1]", "fc[2]"}
    other = Schema.declare(TARGET.model_copy(update={"tokenizer_sha256": "5" * 64}), SCHEMA.names, "bfloat16")
    assert errors(request_problems(other, card=CARD)).keys() == {"target.tokenizer_sha256"}


def test_tokens_that_nobody_moves_are_an_error_only_where_samples_are_read_raw() -> None:
    asked = WIRING.model_copy(update={"token_shift": "producer"})
    (note,) = request_problems(SCHEMA, wiring=asked)
    assert (note.where, note.severity) == ("token_shift", "note")
    assert errors(request_problems(SCHEMA, wiring=asked, raw=True)).keys() == {"token_shift"}
    # The card says that nobody has moved them: then the trainer must.
    assert errors(request_problems(SCHEMA, wiring=asked, card=CARD)).keys() == {"token_shift"}


def test_a_server_is_judged_by_what_it_feeds() -> None:
    served = Wiring(consumer="sglang", kind="server", n_layers=61, fc=("layer2", "layer31", "layer59"))
    (problem,) = request_problems(SCHEMA, wiring=served)
    assert (problem.where, problem.slot, problem.got) == ("fc[0]", 0, "layer2")


@pytest.mark.parametrize(
    "content",
    [
        "speculators==0.9.0",
        {"consumer": "speculators", "version": "0.9.0"},
        {"consumer": "speculators", "version": "0.9.0", "fc": None},
        {"consumer": "speculators", "version": "0.9.0", "fc": []},
    ],
)
def test_a_bare_name_is_refused_with_its_default_written_out(content: object) -> None:
    (problem,) = refused(content)
    assert (problem.where, problem.kind, problem.role) == ("wiring.fc", "bare", "fc")
    assert "default for 61 layers" in str(problem.repair)
    written = str(problem.repair).partition("write it out: ")[2]
    read = read_wiring(written.encode(), TARGET)
    assert (read.fc, read.version) == (("layer2", "layer30", "layer58"), "0.9.0")


@pytest.mark.parametrize("name", sorted({c.name for c in declared() if c.kind == "trainer"}))
def test_every_trainers_bare_name_is_refused(name: str) -> None:
    (problem,) = refused(name)
    assert problem.kind == "bare"
    assert "write it" in str(problem.repair)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"fc": ["layer3", "layer61", "layer099"]}, {"wiring.fc[1]", "wiring.fc[2]"}),
        ({"target": {"tensor": "last", "applies_norm": True}}, {"wiring.target"}),
        ({"n_layers": "61"}, {"wiring.n_layers"}),
        ({"n_layers": 61.0}, {"wiring.n_layers"}),
        ({"kind": "backend", "extra": 1}, {"wiring.kind", "wiring.extra"}),
        ({"fc": "layer3"}, {"wiring.fc"}),
        ({"fc": ["layer3"] * 65}, {"wiring.fc"}),
        ({"target": {"tensor": "final", "applies_norm": 1}}, {"wiring.target.applies_norm"}),
    ],
)
def test_what_is_no_wiring_is_told_by_field(change: dict[str, Any], where: set[str]) -> None:
    assert {problem.where for problem in refused({**WRITTEN, **change})} == where


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"3",
        b"[1]",
        b"[" * 60_000,
        b"\xff",
        b'{"fc": ["layer3"], "fc": ["layer4"]}',
        b'{"fc": NaN}',
        b" " * (MAX_WIRING_BYTES + 1),
        b'{"n_layers": ' + b"9" * 6000 + b"}",
        json.dumps("\ud800").encode(),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_nonsense_is_problems(data: bytes) -> None:
    assert len("".join(map(str, refused(data)))) < 3000


@settings(deadline=None, max_examples=60)
@given(
    content=st.one_of(
        json_values,
        st.dictionaries(st.sampled_from([*WRITTEN, "x"]), json_values),
        st.tuples(st.sampled_from([*WRITTEN]), json_values).map(lambda pair: {**WRITTEN, pair[0]: pair[1]}),
    )
)
def test_any_json_is_a_wiring_or_problems_with_a_repair_each(content: object) -> None:
    found: tuple[Problem, ...]
    try:
        found = request_problems(SCHEMA, wiring=read_wiring(json.dumps(content).encode(), TARGET))
    except RecordError as error:
        found = error.problems or (Problem(where="", kind="", message="no problem is named"),)
    assert all(problem.repair for problem in found)
