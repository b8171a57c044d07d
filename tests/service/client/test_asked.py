"""A wiring as a person writes it becomes a whole one, or is refused with all that is wrong."""

import pytest

from schemas.card import Card
from schemas.schema import Schema
from schemas.wiring import TargetRole
from schemas.wiring import Wiring as WholeWiring
from service.client.asked import Asked, Wiring, settle
from service.client.errors import RefusedError
from tests.builders import tiny_schema, tiny_target

SCHEMA = tiny_schema(("embed", "layer2", "layer15", "layer27", "final"), target=tiny_target(n_layers=30))
FC = ["layer2", "layer15", "layer27"]


def refused(asked: Asked, schema: Schema = SCHEMA) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        settle(asked, schema)
    return error.value


def test_what_is_not_written_is_what_the_consumer_is_declared_to_do() -> None:
    settled = settle(Wiring("speculators", FC, "final", version="0.9.0"), SCHEMA)
    assert settled.wiring == WholeWiring(
        consumer="speculators",
        kind="trainer",
        version="0.9.0",
        n_layers=30,
        fc=tuple(FC),
        target=TargetRole(tensor="final", applies_norm=True),
        token_shift="consumer",
        mask_alignment="next",
        position_start=1,
    )
    assert not settled.notes


def test_an_assumed_version_is_said() -> None:
    (note,) = settle(Wiring("speculators", FC, "final"), SCHEMA).notes
    assert note.severity == "note"
    assert "0.9.0" in note.message


@pytest.mark.parametrize(
    "asked",
    ["speculators", "speculators==0.9.0", Wiring("speculators"), Wiring("speculators", version="0.9.0")],
    ids=str,
)
def test_a_bare_name_is_refused_with_its_default_written_out(asked: Asked) -> None:
    (problem,) = refused(asked).problems
    assert problem.kind == "bare"
    assert problem.repair is not None
    written = problem.repair.partition("write it out: ")[2]
    whole = eval(written, {"Wiring": Wiring})
    assert settle(whole, SCHEMA).wiring.fc == tuple(FC)


def test_a_name_without_a_default_is_refused_too() -> None:
    assert refused("nobody").problems[0].kind == "bare"


def test_all_problems_come_at_once() -> None:
    problems = refused(
        Wiring("speculators", ["layer3", "layer15", "layer28"], "final_normed", "0.9.0")
    ).problems
    assert [problem.where for problem in problems if problem.severity == "error"] == [
        "target",
        "fc[0]",
        "fc[2]",
        "target",
    ]


def test_the_norm_that_a_trainer_runs_is_not_guessed_from_the_tensor() -> None:
    problems = refused(Wiring("specforge", FC, "final", "0.2.0")).problems
    assert any("without a norm" in problem.message and problem.role == "target" for problem in problems)


def test_names_that_the_target_does_not_have_are_refused() -> None:
    assert "got 30" in str(refused(Wiring("speculators", ["layer2", "layer15", "layer30"], "final")))


def test_a_target_is_named() -> None:
    (problem,) = refused(Wiring("speculators", FC)).problems
    assert problem.where == "wiring.target"


def test_an_undeclared_trainer_says_all_of_its_wiring_itself() -> None:
    (problem,) = refused(Wiring("mine", FC, "final")).problems
    assert problem.repair is not None
    assert "schemas.wiring.Wiring(" in problem.repair
    whole = WholeWiring(
        consumer="mine",
        kind="trainer",
        n_layers=30,
        fc=tuple(FC),
        target=TargetRole(tensor="final", applies_norm=True),
    )
    assert settle(whole, SCHEMA).wiring == whole


@pytest.mark.parametrize("consumer", ["sglang", "vllm"])
def test_a_server_is_no_trainer(consumer: str) -> None:
    assert refused(Wiring(consumer, FC, "final")).problems
    whole = WholeWiring(consumer=consumer, kind="server", n_layers=30, fc=tuple(FC))
    assert any(problem.where == "wiring.kind" for problem in refused(whole).problems)


def test_one_text_is_no_list_of_tensors() -> None:
    assert "expected a list of tensors" in str(refused(Wiring("speculators", "layer2", "final")))


def test_a_card_stands_for_its_wiring() -> None:
    wiring = settle(Wiring("speculators", FC, "final", "0.9.0"), SCHEMA).wiring
    card = Card(target=SCHEMA.target, wiring=wiring)
    settled = settle(card, SCHEMA)
    assert settled.wiring == wiring
    assert settled.card is card
    other = tiny_target(n_layers=30).model_copy(update={"model_id": "other", "vocab_size": 999})
    assert refused(Card(target=other, wiring=wiring)).problems
