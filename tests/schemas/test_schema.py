"""Declaring a schema, its fingerprint, and every way in which a sample departs from it."""

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.boundary import all_names
from schemas.errors import RecordError, SchemaError
from schemas.record import canonical_json
from schemas.schema import (
    INPUT_IDS,
    ITEM_BYTES,
    LOSS_MASK,
    TARGET_ARGMAX,
    DType,
    Schema,
    TensorFacts,
    TokenColumn,
)
from tests.schemas.test_target import CHANGES, NAMES, changed_target
from tests.schemas.values import GOLDEN, SCHEMA, TARGET, schemas, targets

VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "fingerprints.json").read_text())
PRINT_FINGERPRINT = (
    "import sys; from schemas.schema import Schema; "
    "print(Schema.from_json(sys.stdin.buffer.read(), 'schema').fingerprint)"
)


def declared(*names: str, dtype: DType = "bfloat16") -> Schema:
    return Schema.declare(TARGET, names, dtype)


def refused(*names: str) -> list[tuple[str, str]]:
    with pytest.raises(SchemaError, match="the tensors do not fit models/tiny") as caught:
        declared(*names)
    return [(problem.where, problem.kind) for problem in caught.value.problems]


@settings(deadline=None, max_examples=60)
@given(targets, st.data())
def test_tensors_stand_in_the_order_of_depth_however_they_are_given(target: Any, data: st.DataObject) -> None:
    order = all_names(target.n_layers)
    names = data.draw(st.lists(st.sampled_from(order), min_size=1, max_size=6, unique=True))
    schema = Schema.declare(target, names, "bfloat16")
    assert schema.names == tuple(name for name in order if name in names)
    assert schema == Schema.declare(target, reversed(names), "bfloat16")


def test_all_wrong_names_are_said_at_once() -> None:
    assert refused("embed", "layer4", "layer0", "embed", "norm", "final") == [
        ("layer4", "tensor_name"),
        ("layer0", "tensor_name"),
        ("norm", "tensor_name"),
        ("embed", "duplicate"),
    ]
    assert refused() == [("tensors", "empty")]


def test_a_schema_says_its_bytes() -> None:
    assert str(SCHEMA.tensor("layer2")) == "layer2: bfloat16[token, 8]"
    assert [spec.row_bytes for spec in SCHEMA.tensors] == [16] * 4
    assert SCHEMA.token_bytes == 64
    assert declared("embed", dtype="float32").token_bytes == 32
    assert [column.row_bytes for column in (INPUT_IDS, LOSS_MASK)] == [4, 1]
    assert set(ITEM_BYTES) == {"bfloat16", "float16", "float32", "int32", "uint8", "int64"}


def test_a_tensor_that_is_not_declared_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(SchemaError, match="expected one of embed, layer2, final, final_normed, got 'layer3'"):
        SCHEMA.tensor("layer3")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_published_fingerprints(vector: dict[str, Any]) -> None:
    schema = Schema.from_json(canonical_json(vector["schema"]), vector["id"])
    assert schema.fingerprint == vector["fingerprint"]


@settings(deadline=None, max_examples=60)
@given(schemas())
def test_a_fingerprint_is_the_hash_of_the_canonical_json_without_the_targets_names(schema: Schema) -> None:
    content = json.loads(schema.to_json())
    del content["target"]["model_id"], content["target"]["revision"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert schema.fingerprint == hashlib.sha256(text.encode()).hexdigest()


@settings(deadline=None, max_examples=60)
@given(schemas())
def test_a_schema_reads_back_as_it_was(schema: Schema) -> None:
    again = Schema.from_json(schema.to_json(), "schema")
    assert again == schema
    assert again.to_json() == schema.to_json()
    assert again.fingerprint == schema.fingerprint


@pytest.mark.parametrize("seed", ["0", "12345"])
def test_a_fingerprint_is_the_same_in_every_process(seed: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", PRINT_FINGERPRINT],
        input=SCHEMA.to_json(),
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    ).stdout
    assert said.decode().strip() == SCHEMA.fingerprint


@pytest.mark.parametrize("field", CHANGES)
def test_the_targets_content_changes_the_fingerprint(field: str) -> None:
    other = Schema.declare(changed_target({field: CHANGES[field]}), ["embed", "layer2"], "bfloat16")
    assert other.fingerprint != declared("embed", "layer2").fingerprint


@pytest.mark.parametrize("field", NAMES)
def test_the_targets_names_do_not(field: str) -> None:
    other = Schema.declare(changed_target({field: NAMES[field]}), ["embed", "layer2"], "bfloat16")
    assert other.fingerprint == declared("embed", "layer2").fingerprint
    assert other != declared("embed", "layer2")


def test_tensors_dtype_and_columns_change_the_fingerprint() -> None:
    kinds = [
        declared("embed"),
        declared("final"),
        declared("final_normed"),
        declared("embed", "final"),
        declared("embed", dtype="float16"),
        declared("embed", dtype="float32"),
        Schema.declare(TARGET, ["embed"], "bfloat16", (INPUT_IDS, LOSS_MASK, TARGET_ARGMAX)),
        Schema.declare(
            TARGET,
            ["embed"],
            "bfloat16",
            (INPUT_IDS, LOSS_MASK, TokenColumn(name="target_argmax", dtype="uint8")),
        ),
    ]
    assert len({schema.fingerprint for schema in kinds}) == len(kinds)


def bf16(*shape: int) -> TensorFacts:
    return TensorFacts("bfloat16", shape)


def facts(schema: Schema, n_tokens: int) -> dict[str, TensorFacts]:
    return {spec.name: TensorFacts(spec.dtype, (n_tokens, spec.width)) for spec in schema.tensors}


@settings(deadline=None, max_examples=60)
@given(schemas(), st.integers(1, 300))
def test_a_sample_that_fits_has_no_problem(schema: Schema, n_tokens: int) -> None:
    assert list(schema.problems(n_tokens, facts(schema, n_tokens))) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            {"embed": TensorFacts("float16", (5, 8))},
            ["embed: expected bfloat16, got float16"],
            id="dtype",
        ),
        pytest.param({"embed": bf16(4, 8)}, ["embed: expected (5, 8), got (4, 8)"], id="rows"),
        pytest.param({"embed": bf16(5, 7)}, ["embed: expected (5, 8), got (5, 7)"], id="width"),
        pytest.param({"embed": bf16(8, 5)}, ["embed: expected (5, 8), got (8, 5)"], id="swapped"),
        pytest.param({"embed": bf16(40)}, ["embed: expected (5, 8), got (40,)"], id="flat"),
        pytest.param({"embed": bf16(1, 5, 8)}, ["embed: expected (5, 8), got (1, 5, 8)"], id="batched"),
        pytest.param(
            {"embed": None}, ["embed: expected embed: bfloat16[token, 8], got no such tensor"], id="missing"
        ),
        pytest.param(
            {"layer3": bf16(5, 8)},
            ["layer3: expected only embed, layer2, final, final_normed, got 'layer3' too"],
            id="undeclared",
        ),
        pytest.param(
            {
                "embed": None,
                "layer2": TensorFacts("float32", (6, 8)),
                "final": bf16(5, 16),
                "final_normed": TensorFacts("float32", (5, 8)),
                "layer3": bf16(5, 8),
                "hidden": bf16(5, 8),
            },
            [
                "embed: expected embed: bfloat16[token, 8], got no such tensor",
                "layer2: expected bfloat16, got float32",
                "layer2: expected (5, 8), got (6, 8)",
                "final: expected (5, 8), got (5, 16)",
                "final_normed: expected bfloat16, got float32",
                "layer3: expected only embed, layer2, final, final_normed, got 'layer3' too",
                "hidden: expected only embed, layer2, final, final_normed, got 'hidden' too",
            ],
            id="everything",
        ),
    ],
)
def test_every_departure_is_said_by_name(change: dict[str, TensorFacts | None], expected: list[str]) -> None:
    given_facts = {name: fact for name, fact in (facts(SCHEMA, 5) | change).items() if fact is not None}
    assert [str(problem) for problem in SCHEMA.problems(5, given_facts)] == expected


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        pytest.param(("tensors", 1, "boundary"), 3, "layer2: expected Place", id="boundary"),
        pytest.param(("tensors", 1, "name"), "layer3", "layer3: expected Place", id="name"),
        pytest.param(("tensors", 1, "name"), "layer4", "layer4: expected a layer", id="beyond"),
        pytest.param(("tensors", 2, "norm"), "post_norm", "final: expected Place", id="norm-state"),
        pytest.param(("tensors", 1, "width"), 16, "layer2: expected width 8, got 16", id="width"),
        pytest.param(("target", "n_layers"), 5, "final: expected Place", id="depth"),
        pytest.param(("token_columns", 0, "dtype"), "uint8", "token_columns: expected", id="ids"),
        pytest.param(("token_columns", 1, "name"), "input_ids", "token_columns: expected", id="columns"),
        pytest.param(("token_columns",), [], "token_columns: expected", id="no-columns"),
        pytest.param(("tensors", 0, "boundary"), "0", "expected a valid integer, got '0'", id="text"),
        pytest.param(("tensors", 0, "dtype"), "float64", "expected 'bfloat16', ", id="dtype"),
        pytest.param(
            ("tensors", 1), json.loads(SCHEMA.tensors[0].to_json()), "expected distinct names", id="twice"
        ),
        pytest.param(("tensors",), [], "expected to have at least 1 item", id="no-tensors"),
    ],
)
def test_a_schema_on_disk_that_contradicts_itself_is_refused(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    content = json.loads(SCHEMA.to_json())
    holder: Any = content
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(RecordError, match="schema is not a valid Schema") as caught:
        Schema.from_json(canonical_json(content), "schema")
    assert any(message in problem.message for problem in caught.value.problems)


def test_tensors_out_of_order_or_twice_are_refused_with_all_other_contradictions() -> None:
    with pytest.raises(ValidationError) as caught:
        Schema(
            target=TARGET,
            tensors=(SCHEMA.tensors[1], SCHEMA.tensors[0], SCHEMA.tensors[0].model_copy(update={"width": 4})),
            token_columns=(LOSS_MASK, INPUT_IDS),
        )
    text = str(caught.value)
    assert "embed: expected width 8, got 4" in text
    assert "expected distinct names in the order of depth, got ('layer2', 'embed', 'embed')" in text
    assert "token_columns: expected input_ids int32, loss_mask uint8" in text
