"""The picture and the rows behind it: whole, readable by a machine, and the same as what is printed."""

import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from datagen.replay.candidates import TRUE_TARGET, Candidate, Inputs, off_by
from datagen.replay.declaring import Declaration
from datagen.replay.errors import ReplayError
from datagen.replay.picture import draw, write_picture
from datagen.replay.replaying import Answer
from datagen.replay.score import DEFINITIONS
from datagen.replay.screening import Findings
from datagen.replay.telling import as_data, rows
from datagen.replay.verdict import judge
from schemas.boundary import all_names
from tests.datagen.replay.findings import found

N_LAYERS = 6
FC = ("layer2", "layer3", "layer5")
SVG = "{http://www.w3.org/2000/svg}"


def answer(
    trained: Inputs | None, served: Inputs | None, findings: Findings, boundaries: Findings | None = None
) -> Answer:
    declared = None if trained is None else Candidate(trained, TRUE_TARGET)
    declaration = Declaration(declared, "speculators==0.9.0", served, "sglang==0.5.23", (), ())
    verdict = judge(declaration, findings, boundaries, "there is no audit set", N_LAYERS)
    return Answer(
        "data/demo@1", "my <draft>", N_LAYERS, declaration, findings, False, boundaries, verdict, ("a note",)
    )


def at_every_boundary() -> Findings:
    shares = {Inputs(FC): 0.5}
    for slot in range(3):
        for depth, name in enumerate(all_names(N_LAYERS)):
            shares.setdefault(Inputs((*FC[:slot], name, *FC[slot + 1 :])), 0.4 - 0.02 * depth)
    return replace(found(shares, 8), names=all_names(N_LAYERS))


INCIDENT = Inputs(("embed", "layer2", "layer3"))
SHARES = {
    INCIDENT: 0.6,
    Inputs(FC): 0.2,
    Inputs(FC[::-1]): 0.1,
    Inputs(FC, source="zeros"): 0.05,
}


def test_the_verdict_says_what_was_trained_what_is_fed_and_what_to_expect() -> None:
    verdict = answer(INCIDENT, Inputs(FC), found(SHARES)).verdict
    assert verdict.is_as_declared
    assert verdict.is_as_served is False
    assert not verdict.is_well
    text = "\n".join(verdict.sentences)
    assert "these weights were trained with embed, layer2, layer3: they score 61.0%" in text
    assert "the server declared, sglang==0.5.23, would feed layer2, layer3, layer5: expect 21.0%" in text
    assert "instead of 61.0%" in text
    assert "an off-by-one cannot be seen: there is no audit set" in text


def test_what_is_too_close_to_call_is_named_with_its_interval() -> None:
    near = {**SHARES, Inputs(("embed", "layer3", "layer2")): 0.599}
    measured = found(near)
    twin = measured.measured[Candidate(Inputs(("embed", "layer3", "layer2")), TRUE_TARGET)]
    # Better in one conversation and worse in the others: on the whole, nobody knows.
    twin.learned.right[0] += 12
    verdict = answer(INCIDENT, None, measured).verdict
    assert verdict.close
    assert any("too close to call at 99% over 12 conversations: embed," in said for said in verdict.sentences)
    assert verdict.is_as_declared


def test_a_draft_that_beats_no_floor_is_not_judged_by_its_best_guess() -> None:
    verdict = answer(INCIDENT, None, found({**SHARES, Inputs(FC, source="zeros"): 0.7})).verdict
    assert not verdict.is_well
    assert "nothing stands out" in verdict.sentences[0]


@pytest.mark.parametrize(
    ("share", "told"), [(0.4, "no off-by-one"), (0.5, "an off-by-one is too close to call")]
)
def test_an_off_by_one_is_told_from_the_audit_set(share: float, told: str) -> None:
    fc = off_by(FC, -1, N_LAYERS)
    assert fc is not None
    boundaries = found({Inputs(FC): 0.5, Inputs(fc): share, Inputs(("layer2", "layer3", "embed")): 0.1}, 8)
    best = Candidate(Inputs(FC), TRUE_TARGET)
    boundaries = Findings(boundaries.measured, best, 8, 3, names=all_names(N_LAYERS))
    verdict = answer(Inputs(FC), None, found({Inputs(FC): 0.5, Inputs(FC[::-1]): 0.1}), boundaries).verdict
    assert any(
        told in said and "audit set, which alone has every boundary" in said for said in verdict.sentences
    )


def test_the_picture_is_svg_with_every_wiring_its_bar_and_the_verdict() -> None:
    told = answer(INCIDENT, Inputs(FC), found(SHARES), at_every_boundary())
    tree = ElementTree.fromstring(draw(told))
    words = [element.text or "" for element in tree.iter(f"{SVG}text")]
    assert "accuracy by wiring: my <draft>" in words
    for row in rows(told, told.findings):
        assert any(row.title in said for said in words)
        assert f"{row.learned.value:.1%}" in words
    assert any(said.startswith("these weights were trained with") for said in words)
    assert {"slot 0 (embed)", "as declared", "as served"} & set(words)
    assert len(list(tree.iter(f"{SVG}rect"))) >= 1 + len(SHARES)
    numbers = [
        float(value) for element in tree.iter() for key, value in element.items() if key in ("x", "y", "cx")
    ]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)


def test_one_conversation_is_drawn_without_its_interval() -> None:
    tree = ElementTree.fromstring(draw(answer(INCIDENT, None, found(SHARES, 1))))
    assert len(list(tree.iter(f"{SVG}rect"))) >= 1 + len(SHARES)


def test_a_picture_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="the picture cannot be written"):
        write_picture(tmp_path / "no" / "folder.svg", answer(INCIDENT, None, found(SHARES)))


def test_what_one_conversation_does_not_tell_is_null() -> None:
    data = json.loads(json.dumps(as_data(answer(INCIDENT, Inputs(FC), found(SHARES, 1))), allow_nan=False))
    assert data["is_as_declared"] is None
    assert data["stored"]["rows"][0]["accuracy"]["server"]["pooled"]["low"] is None


def test_the_data_is_json_and_holds_every_row() -> None:
    told = answer(INCIDENT, Inputs(FC), found(SHARES, 8), at_every_boundary())
    data = json.loads(json.dumps(as_data(told), allow_nan=False))
    assert data["ok"] is False
    assert data["stored"]["rows"][0]["words"] == "embed, layer2, layer3"
    assert data["stored"]["rows"][0]["is"] == ["best", "declared"]
    assert set(data["stored"]["rows"][0]["accuracy"]) == set(DEFINITIONS)
    assert data["stored"]["rows"][-1]["source"] == "zeros"
    assert data["audit"]["conversations"] == 8
