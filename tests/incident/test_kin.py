"""Faults of the incident's kind: the right shapes, the wrong tensors, each told apart from its right form."""

from dataclasses import replace
from pathlib import Path

import pytest

from datagen.wiring.cards import write_card
from datagen.wiring.checking import Asked, Report, card_of, check
from schemas.problem import Problem
from tests.incident.makers import MEANT, draft_config, kimi, make_dataset, wiring_file

SERVER = "sglang==0.5.23"


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    return make_dataset(tmp_path, MEANT)


def by_where(problems: list[Problem]) -> dict[str, Problem]:
    return {problem.where: problem for problem in problems}


def card_in(folder: Path, dataset: str, more: str = "") -> Path:
    """Write the card of a trainer that takes what was meant."""
    report = check(Asked(dataset=dataset, trainer_wiring=wiring_file(folder, more=more)))
    return write_card(folder / "card.json", card_of(report))


@pytest.mark.parametrize(
    ("version", "fed"),
    [("0.5.12", (4, 32, 60)), ("0.5.13", (3, 31, 59)), ("0.5.23", (3, 31, 59))],
)
def test_the_same_ids_are_other_layers_to_an_older_sglang(
    tmp_path: Path, dataset: str, version: str, fed: tuple[int, ...]
) -> None:
    """PR #25454 changed the meaning of ids in a draft's config that nobody touched."""
    report = check(
        Asked(
            dataset=dataset,
            trainer_wiring=wiring_file(tmp_path),
            server=f"sglang=={version}",
            draft_config=draft_config(tmp_path),
        )
    )
    assert report.served is not None
    assert report.served.wiring is not None
    assert report.served.wiring.boundaries == fed
    served = by_where(report.errors)
    if fed == (3, 31, 59):
        assert served == {}
        return
    assert {f"served fc[{slot}]" for slot in range(3)} <= served.keys()
    assert "[2, 30, 58]" in str(served["served fc"].repair)


def test_layer_ids_that_were_shifted_already_are_shifted_again(tmp_path: Path) -> None:
    """SGLang adds 1 to the ids of a Llama: ids that are boundaries already give the layers after them."""
    llama = kimi("llama")
    dataset = make_dataset(tmp_path, MEANT, llama)
    for ids, is_right in (((2, 30, 58), True), ((3, 31, 59), False)):
        report = check(
            Asked(
                dataset=dataset,
                trainer_wiring=wiring_file(tmp_path),
                server=SERVER,
                draft_config=draft_config(tmp_path, ids),
            )
        )
        assert (report.errors == []) is is_right
    message = by_where(report.errors)["served fc[0]"].message
    assert ("expected layer3 (" in message, "got layer4 (" in message) == (True, True)


def test_a_dump_by_vllm_is_not_normed_and_modelopt_reads_it_as_if_it_were(tmp_path: Path) -> None:
    names = ("layer1", "layer2", "layer29", "layer30", "layer57", "layer58", "final", "final_normed")
    dataset = make_dataset(tmp_path, names)
    by_vllm = check(Asked(dataset=dataset, trainer="modelopt-vllm"))
    (problem,) = by_vllm.errors
    assert problem.where == "target"
    assert problem.message.startswith("expected final_normed (")
    assert "got final: the last state without its norm" in problem.message
    assert problem.repair == "feed final_normed, which the dataset has, as the target"
    assert check(Asked(dataset=dataset, trainer="modelopt-hf")).errors == []


@pytest.mark.parametrize(
    ("target", "norm", "told"),
    [
        ("final", True, None),
        ("final", False, "the last state without its norm"),
        ("final_normed", False, None),
        ("final_normed", True, "it is normed twice"),
        ("layer59", True, "layer 59 of 61, not the last one"),
        ("embed", True, "the embedding"),
    ],
)
def test_a_norm_too_few_or_too_many_is_named(
    tmp_path: Path, target: str, norm: bool, told: str | None
) -> None:
    dataset = make_dataset(tmp_path, (*MEANT, "embed", "final_normed"))
    report = check(Asked(dataset=dataset, trainer_wiring=wiring_file(tmp_path, target=target, norm=norm)))
    found = by_where(report.errors)
    assert found.keys() == ({"target"} if told else set())
    if told:
        assert told in found["target"].message
        assert f"got {target}" in found["target"].message


def test_tokens_that_the_export_shifted_are_shifted_again(tmp_path: Path, dataset: str) -> None:
    """A published case: 1.66 tokens accepted in place of 1.93."""
    card = card_in(tmp_path, dataset, 'token_shift = "consumer"')
    shifted = card.with_name("shifted.json")
    shifted.write_bytes(card.read_bytes().replace(b'"token_shift":"consumer"', b'"token_shift":"producer"'))
    trainer = wiring_file(tmp_path, more='token_shift = "consumer"')
    assert check(Asked(card=card, trainer_wiring=trainer)).errors == []
    (problem,) = check(Asked(card=shifted, trainer_wiring=trainer)).errors
    assert problem.where == "token_shift"
    assert "moved twice, state i with token i+2" in problem.message
    assert problem.repair == "export samples unshifted"


@pytest.mark.parametrize("trainer", ["automodel", "own"])
def test_tokens_that_nobody_shifts_are_an_error_where_samples_are_read_as_stored(
    tmp_path: Path, trainer: str
) -> None:
    """Samples are stored unshifted: an export or the client moves them; who reads raw gets them so."""
    names = ("layer2", "layer30", "layer58", "final_normed")
    own = wiring_file(tmp_path, names[:3], "final_normed", norm=False, more='token_shift = "producer"')
    dataset = make_dataset(tmp_path, names)
    asked = Asked(
        dataset=dataset,
        trainer=trainer if trainer == "automodel" else None,
        trainer_wiring=own if trainer == "own" else None,
    )
    handed = check(asked)
    assert handed.errors == []
    (note,) = [problem for problem in handed.notes if problem.where == "token_shift"]
    assert "an export in its format, or the client by this wiring, moves them" in note.message
    (problem,) = check(replace(asked, raw=True)).errors
    assert problem.where == "token_shift"
    assert "never moved, state i with token i" in problem.message
    shifts_itself = replace(asked, trainer="eagle", trainer_wiring=None, raw=True)
    assert check(shifts_itself).errors == []


def test_a_mask_that_stands_one_off_is_a_note_that_says_what_follows(tmp_path: Path, dataset: str) -> None:
    card = card_in(tmp_path, dataset, 'mask_alignment = "same"')
    other = wiring_file(tmp_path, more='mask_alignment = "next"')
    report = check(Asked(card=card, trainer_wiring=other))
    assert report.errors == []
    told = [problem.message for problem in report.notes if problem.kind == "mask_alignment"]
    assert any("begin and end one token earlier" in message for message in told)
    same = check(Asked(card=card, trainer_wiring=wiring_file(tmp_path, more='mask_alignment = "same"')))
    assert not any("one token earlier" in problem.message for problem in same.notes)


@pytest.mark.parametrize(
    "fc",
    [("layer59", "layer31", "layer3"), ("layer31", "layer59", "layer3"), ("layer59", "layer3", "layer31")],
    ids=["reversed", "rotated", "rotated back"],
)
@pytest.mark.parametrize("server", [SERVER, "vllm==0.33.0"])
def test_an_order_that_a_server_does_not_keep_is_named(
    tmp_path: Path, dataset: str, fc: tuple[str, ...], server: str
) -> None:
    nested = server.startswith("sglang")
    report = check(
        Asked(
            dataset=dataset,
            trainer_wiring=wiring_file(tmp_path, fc),
            server=server,
            draft_config=draft_config(tmp_path, tuple(int(name[5:]) for name in fc), nested),
        )
    )
    served = by_where(report.errors)
    assert served["served fc"].kind == "order"
    assert "each slot has weights of its own" in served["served fc"].message
    for slot, (trained, fed) in enumerate(zip(fc, MEANT, strict=False)):
        if trained != fed:
            assert served[f"served fc[{slot}]"].message.startswith(f"expected {trained} (")
    assert "cannot feed" in str(served["served fc"].repair)


def test_another_target_of_the_same_shape_is_refused(tmp_path: Path, dataset: str) -> None:
    """Kimi-K2 and Kimi-K2.5 share depth, width and vocabulary."""
    card = card_in(tmp_path, dataset)
    assert check(Asked(card=card, dataset=dataset)).errors == []
    for target in (kimi("kimi_k2"), kimi(weights="3")):
        other = make_dataset(tmp_path / target.model_type, MEANT, target, "others")
        found = by_where(check(Asked(card=card, dataset=other)).errors)
        assert found.keys() <= {"target.model_type", "target.weights.sha256"}
        assert len(found) == 1
        assert all("equal shapes are no reason" in str(problem.repair) for problem in found.values())


def test_the_config_of_another_target_of_the_same_shape_is_refused(tmp_path: Path, dataset: str) -> None:
    config = tmp_path / "target.json"
    shape = '"num_hidden_layers": 61, "hidden_size": 8, "vocab_size": 1000'
    for model_type, wrong in (("kimi_k25", set()), ("kimi_k2", {"target.model_type"})):
        config.write_text(f'{{"model_type": "{model_type}", {shape}}}')
        report: Report = check(
            Asked(dataset=dataset, trainer_wiring=wiring_file(tmp_path), target_config=config)
        )
        assert by_where(report.errors).keys() == wrong
