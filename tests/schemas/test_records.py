"""The records on disk: format v1 stays readable byte for byte, and a digest covers every field."""

import json
from datetime import timedelta
from typing import Any

import pytest

from schemas.errors import RecordError
from schemas.record import Record, canonical_json
from schemas.records import BLOCK_ROWS, PartRecord, RunStart, SplitRule, VersionRecord
from schemas.run_checks import RunChecks
from tests.schemas.values import GOLDEN, MADE_AT, PART, RECORDS, VERSION

CHANGES: dict[str, object] = {
    "number": 3,
    "parent": 2,
    "parent_digest": "9" * 64,
    "operation": "drop",
    "commit_id": "e" * 32,
    "created_at": MADE_AT + timedelta(microseconds=1),
    "dataset_id": "e" * 32,
    "schema_fingerprint": "e" * 64,
    "run_id": None,
    "n_samples": 3,
    "n_tokens": 71,
    "size_bytes": 2989,
    "index": (),
    "quarantine": (),
    "n_quarantined": 2,
    "splits": (SplitRule(name="default", seed=1, fractions=(("train", 0.9), ("test", 0.1))),),
    "condemned": (),
}


def paths(value: object, prefix: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every leaf of a JSON value."""
    items = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if items is None:
        return [prefix]
    return [path for key, inner in items for path in paths(inner, (*prefix, key))]


def refused(kind: type[Record], data: bytes) -> list[str]:
    with pytest.raises(RecordError) as caught:
        kind.from_json(data, "x.json")
    return [problem.where for problem in caught.value.problems]


@pytest.mark.parametrize("name", RECORDS)
def test_format_v1_is_written_byte_for_byte_as_published(name: str) -> None:
    assert RECORDS[name].to_json() == (GOLDEN / f"{name}_v1.json").read_bytes()


@pytest.mark.parametrize("name", RECORDS)
def test_format_v1_stays_readable(name: str) -> None:
    data = (GOLDEN / f"{name}_v1.json").read_bytes()
    record = type(RECORDS[name]).from_json(data, name)
    assert record == RECORDS[name]
    assert record.to_json() == data


def test_checks_of_before_engines_said_anything_stay_readable() -> None:
    data = (GOLDEN / "run_checks_v1_before_engines.json").read_bytes()
    record = RunChecks.from_json(data, "checks.json")
    assert (record.engine, record.proven_by) == ({}, "")
    assert record == RECORDS["run_checks"].model_copy(update={"engine": {}, "proven_by": ""})


def test_a_run_of_before_arguments_were_kept_stays_readable() -> None:
    record = RunStart.from_json((GOLDEN / "run_start_v1_before_arguments.json").read_bytes(), "start.json")
    assert record.provenance.engine_arguments is None


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "quarantined_sample"])
def test_a_record_says_its_format_and_another_is_refused(name: str) -> None:
    kind, content = type(RECORDS[name]), json.loads(RECORDS[name].to_json())
    assert content["format"] == f"strata.{name}.v1"
    assert refused(kind, canonical_json({**content, "format": f"strata.{name}.v2"})) == ["format"]
    del content["format"]
    assert refused(kind, canonical_json(content)) == ["format"]


@pytest.mark.parametrize("name", RECORDS)
def test_a_leaf_of_another_type_is_refused(name: str) -> None:
    """Free-form parts take any JSON; every other leaf has one type."""
    data = RECORDS[name].to_json()
    for path in paths(json.loads(data)):
        if {"config", "sampling", "engine_arguments"} & set(path):
            continue
        content = json.loads(data)
        holder: Any = content
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = {"of": "another type"}
        assert ".".join(map(str, path)) in refused(type(RECORDS[name]), canonical_json(content))


def test_numbers_in_disguise_are_refused_in_a_version() -> None:
    content = json.loads(VERSION.to_json())
    content |= {"number": "2", "parent": True, "n_samples": 2.0, "created_at": 1767323045}
    content["index"][0]["n_rows"] = "2"
    content["splits"][0]["fractions"][0][1] = "0.9"
    assert set(refused(VersionRecord, canonical_json(content))) == {
        "number",
        "parent",
        "n_samples",
        "created_at",
        "index.0.n_rows",
        "splits.0.fractions.0.1",
    }


@pytest.mark.parametrize(
    ("change", "where"),
    [
        pytest.param({"created_at": "2026-01-02T03:04:05"}, "created_at", id="naive-time"),
        pytest.param({"created_at": "2026-01-02"}, "created_at", id="date-only"),
        pytest.param({"part_id": "2" * 31}, "part_id", id="short-uuid"),
        pytest.param({"part_id": "2" * 32 + "\n"}, "part_id", id="uuid-newline"),
        pytest.param({"part_id": "A" * 32}, "part_id", id="upper-case"),
        pytest.param({"schema_fingerprint": "0" * 63}, "schema_fingerprint", id="short-digest"),
        pytest.param({"n_samples": 0}, "n_samples", id="empty-part"),
        pytest.param({"n_tokens": -1}, "n_tokens", id="negative"),
    ],
)
def test_a_value_outside_its_range_is_refused(change: dict[str, object], where: str) -> None:
    assert refused(PartRecord, canonical_json({**json.loads(PART.to_json()), **change})) == [where]


def test_every_field_of_a_version_has_a_changed_value() -> None:
    assert {*CHANGES, "format", "digest"} == set(VersionRecord.model_fields)


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_changes_the_digest(field: str) -> None:
    changed = VERSION.model_copy(update={field: CHANGES[field]})
    assert changed.content_digest() != VERSION.digest


def test_a_change_of_any_leaf_on_disk_breaks_the_seal() -> None:
    data = VERSION.to_json()
    for path in paths(json.loads(data)):
        content = json.loads(data)
        holder: Any = content
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = _other(holder[path[-1]])
        try:
            record = VersionRecord.from_json(canonical_json(content), "x.json")
        except RecordError:
            continue
        assert record.content_digest() != record.digest, path


def _other(value: object) -> object:
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    assert isinstance(value, int | float)
    return value + 1


def test_a_seal_is_its_own_content_and_sealing_twice_changes_nothing() -> None:
    assert VERSION.digest == VERSION.content_digest()
    assert VERSION.sealed() == VERSION
    assert VERSION.model_copy(update={"digest": ""}).sealed() == VERSION
    assert VersionRecord.from_json(VERSION.to_json(), "x.json").content_digest() == VERSION.digest


def test_a_part_knows_the_bytes_of_its_files() -> None:
    assert PART.size_bytes == 2088 + 900


def test_a_block_is_64_rows() -> None:
    """The crc32c of a block and the inner chunk of a shard depend on it: another number is another format."""
    assert BLOCK_ROWS == 64
