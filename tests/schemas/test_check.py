"""Relative to a card, everything but the declared wiring is refused, by role and slot; shapes decide nothing.

For every declared consumer, at the oldest and the newest release it is declared for, on any target.
"""

import json
from collections.abc import Callable, Sequence
from itertools import zip_longest

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.boundary import all_names, name_of
from schemas.card import Card, DatasetVersion
from schemas.check import (
    Intention,
    card_dataset,
    card_trainer,
    dataset_server,
    dataset_trainer,
    mask_notes,
    target_shape,
    trainer_alone,
    trainer_server,
)
from schemas.consumers.declared import at_version, declared
from schemas.consumers.resolution import Shape
from schemas.consumers.resolve import resolve_server, resolve_trainer
from schemas.consumers.versions import newest, oldest
from schemas.consumers.write import what_to_write
from schemas.problem import Problem
from schemas.schema import Schema
from schemas.target import Target, WeightsDigest
from schemas.wiring import TargetRole, Wiring
from tests.builders import tiny_target

MODEL_TYPES = ("llama", "qwen3", "kimi_k25", "deepseek_v3", "gpt_oss", "no_such_model")
RELEASES = sorted(
    {
        (consumer.kind, consumer.name, version)
        for consumer in declared()
        for version in (oldest(consumer.versions), newest(consumer.versions))
    },
    key=str,
)
TRAINERS = [(name, version) for kind, name, version in RELEASES if kind == "trainer"]
SERVERS = [(name, version) for kind, name, version in RELEASES if kind == "server"]
quick = settings(deadline=None, max_examples=20)

targets = st.builds(
    lambda n_layers, model_type: tiny_target(n_layers).model_copy(update={"model_type": model_type}),
    st.integers(6, 64),
    st.sampled_from(MODEL_TYPES),
)


def errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def shape_of(target: Target) -> Shape:
    return Shape(model_type=target.model_type, n_layers=target.n_layers)


@st.composite
def meant(draw: st.DrawFn, name: str, version: str | None) -> tuple[Target, Wiring]:
    """Draw what a trainer is meant to take: its own rules for shift, mask and norm, on any tensors."""
    target = draw(targets)
    consumer = at_version(name, version).consumer
    if consumer.one_of:
        consumer = at_version(draw(st.sampled_from(consumer.one_of)), version).consumer
    assert consumer.target is not None
    norm = consumer.target.applies_norm
    every = st.sampled_from(all_names(target.n_layers))
    wiring = Wiring(
        consumer=name,
        kind="trainer",
        version=version,
        n_layers=target.n_layers,
        fc=tuple(draw(st.lists(every, min_size=2, max_size=4, unique=True))),
        target=TargetRole(tensor="final" if norm else "final_normed", applies_norm=norm),
        token_shift=consumer.token_shift,
        mask_alignment=consumer.mask_alignment,
        position_start=consumer.position_start,
    )
    return target, wiring


def neighbours(name: str, n_layers: int) -> list[str]:
    order = [name_of(boundary, n_layers) for boundary in range(n_layers + 1)]
    at = n_layers if name == "final_normed" else order.index(name)
    return [order[b] for b in (at - 1, at + 1) if 0 <= b <= n_layers and order[b] != name]


Change = Callable[[st.DataObject, tuple[str, ...], int], Sequence[str]]


def permuted(data: st.DataObject, fc: tuple[str, ...], _n_layers: int) -> Sequence[str]:
    return data.draw(st.permutations(fc))


def omitted(data: st.DataObject, fc: tuple[str, ...], _n_layers: int) -> Sequence[str]:
    slot = data.draw(st.integers(0, len(fc) - 1))
    return fc[:slot] + fc[slot + 1 :]


def doubled(data: st.DataObject, fc: tuple[str, ...], _n_layers: int) -> Sequence[str]:
    slot = data.draw(st.integers(0, len(fc) - 1))
    return fc[: slot + 1] + fc[slot:]


def repeated(data: st.DataObject, fc: tuple[str, ...], _n_layers: int) -> Sequence[str]:
    """Put one tensor in the place of another: the width stays."""
    slot = data.draw(st.integers(0, len(fc) - 1))
    return (*fc[:slot], data.draw(st.sampled_from(fc)), *fc[slot + 1 :])


def off_by_one(data: st.DataObject, fc: tuple[str, ...], n_layers: int) -> Sequence[str]:
    slot = data.draw(st.integers(0, len(fc) - 1))
    return (*fc[:slot], data.draw(st.sampled_from(neighbours(fc[slot], n_layers))), *fc[slot + 1 :])


def normed(data: st.DataObject, fc: tuple[str, ...], _n_layers: int) -> Sequence[str]:
    """Put the last state in a slot, or its other norm state where it stands in one."""
    other = {"final": "final_normed", "final_normed": "final"}
    slot = data.draw(st.integers(0, len(fc) - 1))
    return (*fc[:slot], other.get(fc[slot], "final"), *fc[slot + 1 :])


CHANGES: dict[str, Change] = {
    change.__name__: change for change in (permuted, omitted, doubled, repeated, off_by_one, normed)
}


@pytest.mark.parametrize(("name", "version"), TRAINERS)
@pytest.mark.parametrize("change", CHANGES)
@quick
@given(data=st.data())
def test_any_other_input_than_the_cards_is_refused_by_slot(
    change: str, name: str, version: str | None, data: st.DataObject
) -> None:
    target, wiring = data.draw(meant(name, version))
    fed = tuple(CHANGES[change](data, wiring.fc, target.n_layers))
    assume(fed)
    assume(fed != wiring.fc)
    card = Card(target=target, wiring=wiring)
    served = Wiring(consumer="server", kind="server", n_layers=target.n_layers, fc=fed)
    for prefix, found in (
        ("", card_trainer(card, wiring.model_copy(update={"fc": fed}))),
        ("served ", trainer_server(wiring, served)),
    ):
        told = {problem.where: problem.message for problem in errors(list(found))}
        assert f"{prefix}fc" in told
        for slot, (want, have) in enumerate(zip_longest(wiring.fc, fed)):
            if want != have:
                message = told[f"{prefix}fc[{slot}]"]
                assert message.startswith(f"expected {want or 'no such slot'} (")
                assert f", got {have or 'none'} (" in message


@pytest.mark.parametrize(("name", "version"), TRAINERS)
@quick
@given(data=st.data())
def test_the_declared_wiring_is_accepted_and_any_other_target_refused(
    name: str, version: str | None, data: st.DataObject
) -> None:
    target, wiring = data.draw(meant(name, version))
    assert wiring.target is not None
    card = Card(target=target, wiring=wiring)
    schema = Schema.declare(target, all_names(target.n_layers), "bfloat16")
    served = Wiring(consumer="server", kind="server", n_layers=target.n_layers, fc=wiring.fc)
    well = [*card_trainer(card, wiring), *trainer_server(wiring, served), *card_dataset(card, schema)]
    assert (
        errors([*well, *trainer_alone(wiring, Intention(fc=wiring.fc, by="it")), *mask_notes(wiring)]) == []
    )
    shifted = {"token_shift"} if wiring.token_shift == "producer" else set()
    assert {problem.where for problem in dataset_trainer(schema, wiring)} == shifted

    right = wiring.target
    wrong = [TargetRole(tensor=right.tensor, applies_norm=not right.applies_norm)]
    for tensor in data.draw(st.lists(st.sampled_from(all_names(target.n_layers)), max_size=4)):
        if tensor != right.tensor:
            wrong.append(TargetRole(tensor=tensor, applies_norm=right.applies_norm))
    for role in wrong:
        other = wiring.model_copy(update={"target": role})
        for found in (card_trainer(card, other), trainer_alone(other)):
            (problem,) = errors(list(found))
            assert problem.where == "target"
            assert role.tensor in problem.message
            assert problem.repair is not None


IDENTITY: dict[str, object] = {
    "model_type": "another",
    "architecture": "Another",
    "hidden_size": 16,
    "vocab_size": 999,
    "weights": WeightsDigest(method="synthetic", sha256="9" * 64),
    "quantisation": "fp8",
    "tokenizer_sha256": "9" * 64,
    "chat_template_sha256": "9" * 64,
}


@pytest.mark.parametrize("field", IDENTITY)
def test_another_target_is_refused_whatever_tells_them_apart(field: str) -> None:
    target = tiny_target(8)
    role = TargetRole(tensor="final", applies_norm=True)
    wiring = Wiring(consumer="mine", kind="trainer", n_layers=8, fc=("layer2",), target=role)
    card = Card(target=target, wiring=wiring)
    other = target.model_copy(update={field: IDENTITY[field]})
    problems = list(card_dataset(card, Schema.declare(other, ["layer2", "final"], "bfloat16")))
    (problem,) = errors(problems)
    assert problem.where.startswith(f"target.{field}")
    moved = target.model_copy(update={"model_id": "elsewhere", "revision": "other"})
    schema = Schema.declare(moved, ["layer2", "final"], "bfloat16")
    assert errors(list(card_dataset(card, schema))) == []


def test_another_schema_of_the_same_target_is_a_note_and_another_depth_an_error() -> None:
    target, role = tiny_target(8), TargetRole(tensor="final", applies_norm=True)
    wiring = Wiring(consumer="mine", kind="trainer", n_layers=8, fc=("layer2",), target=role)
    made_of = DatasetVersion(dataset_id="1" * 32, name="demo", version=1, schema_fingerprint="0" * 64)
    schema = Schema.declare(target, ["layer2", "final"], "bfloat16")
    (note,) = card_dataset(Card(target=target, wiring=wiring, dataset=made_of), schema)
    assert (note.where, note.severity) == ("dataset", "note")
    deeper = wiring.model_copy(update={"n_layers": 9})
    card = Card(target=target, wiring=wiring)
    for found in (card_trainer(card, deeper), trainer_server(wiring, deeper), dataset_server(schema, deeper)):
        (problem,) = errors(list(found))
        assert (problem.where, "8" in problem.message, "9" in problem.message) == (
            "target.n_layers",
            True,
            True,
        )


def test_the_config_of_another_model_is_refused_by_what_differs() -> None:
    target = tiny_target(8)
    assert list(target_shape(target, target.model_copy(update={"model_id": "elsewhere"}))) == []
    changes = {"n_layers": 9, "hidden_size": 16, "vocab_size": 5, "model_type": "other"}
    found = list(target_shape(target, target.model_copy(update=changes)))
    assert {problem.where for problem in found} == {f"target.{field}" for field in changes}


@quick
@given(data=st.data(), target=targets)
def test_what_a_dataset_lacks_is_named_by_role_and_slot(data: st.DataObject, target: Target) -> None:
    every = st.sampled_from(all_names(target.n_layers))
    names = data.draw(st.lists(every, min_size=1, max_size=6, unique=True))
    schema = Schema.declare(target, names, "bfloat16")
    fc = tuple(data.draw(st.lists(st.one_of(every, st.sampled_from(names)), min_size=1, max_size=4)))
    role = TargetRole(tensor=data.draw(st.sampled_from(["final", "final_normed"])), applies_norm=True)
    trainer = Wiring(consumer="mine", kind="trainer", n_layers=target.n_layers, fc=fc, target=role)
    lacking = {f"fc[{slot}]": name for slot, name in enumerate(fc) if name not in names}
    server = trainer.model_copy(update={"kind": "server", "target": None})
    found = {problem.where: problem for problem in dataset_server(schema, server)}
    assert found.keys() == lacking.keys()
    if role.tensor not in names:
        lacking["target"] = role.tensor
    found = {problem.where: problem for problem in dataset_trainer(schema, trainer)}
    assert found.keys() == lacking.keys()
    for where, name in lacking.items():
        assert found[where].message.startswith(f"expected {name} for mine, got a dataset of ")
        assert found[where].repair is not None


@pytest.mark.parametrize("version", ["0.3.0", "0.4.0"])
@quick
@given(data=st.data(), target=targets)
def test_a_trainer_of_bare_lists_is_accepted_for_one_list_only(
    version: str, data: st.DataObject, target: Target
) -> None:
    last = "final" if version == "0.4.0" else "final_normed"
    fc = data.draw(
        st.lists(st.sampled_from(all_names(target.n_layers)[:-2]), min_size=1, max_size=4, unique=True)
    )
    right = (*fc, last)
    wiring = resolve_trainer("speculators", version, shape_of(target), right).wiring
    assert wiring is not None
    card = Card(target=target, wiring=wiring)
    change = data.draw(st.sampled_from(sorted(CHANGES)))
    handed = tuple(CHANGES[change](data, right, target.n_layers))
    got = resolve_trainer("speculators", version, shape_of(target), handed)
    if got.wiring is None:
        assert errors(got.problems)
    else:
        found = errors([*card_trainer(card, got.wiring), *trainer_alone(got.wiring)])
        assert (found == []) is (handed == right)


@pytest.mark.parametrize(("name", "version"), SERVERS)
@quick
@given(data=st.data())
def test_ids_other_than_those_to_write_are_refused_unless_they_feed_the_same(
    name: str, version: str | None, data: st.DataObject
) -> None:
    target = data.draw(targets)
    shape = shape_of(target)
    boundaries = sorted(data.draw(st.sets(st.integers(1, target.n_layers - 1), min_size=3, max_size=3)))
    written = what_to_write(name, version, shape, boundaries)
    if written.ids is None or written.snippet is None:
        assert errors(written.problems) or written.where
        return
    fc = tuple(name_of(boundary, target.n_layers) for boundary in boundaries)
    role = TargetRole(tensor="final", applies_norm=True)
    trained = Wiring(consumer="mine", kind="trainer", n_layers=target.n_layers, fc=fc, target=role)
    right = resolve_server(name, version, shape, json.loads(written.snippet)).wiring
    assert right is not None
    assert errors(list(trainer_server(trained, right))) == []

    slot = data.draw(st.integers(0, 2))
    ids = list(written.ids)
    ids[slot] += data.draw(st.sampled_from([-1, 1, 1000]))
    config = json.loads(written.snippet.replace(json.dumps(list(written.ids)), json.dumps(ids)))
    fed = resolve_server(name, version, shape, config)
    assert fed.wiring is None or fed.wiring.fc != fc
    found = errors(fed.problems) if fed.wiring is None else errors(list(trainer_server(trained, fed.wiring)))
    assert found
