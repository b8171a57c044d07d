"""The incident's parts that need no trainer: held-out copy, unnamed list, wiring file, picture."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from datagen.errors import ExportError
from datagen.export.exporting import Asked, plan_export, run_export
from datagen.replay.score import LEVEL
from datagen.store.dataset import Dataset
from datagen.store.local import LocalDoor
from datagen.store.part import PartWriter
from datagen.store.verify import verify
from datagen.wiring.checking import Asked as AskedCheck
from datagen.wiring.checking import check
from deploy.demo.incident import states as states_module
from deploy.demo.incident.picture import Bar, draw
from deploy.demo.incident.positional import SAVED, write_positional
from deploy.demo.incident.states import States, make_states
from schemas.schema import Schema
from tests.builders import random_sample, tiny_target
from tests.datagen.adapters.exports.builders import open_dataset, states_of

AS_THEN = Path(states_module.__file__).with_name("as_then.toml")
SPLITS = ("train", "validation")


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> States:
    """A demo of thirty conversations, and what is made of it."""
    monkeypatch.chdir(tmp_path)
    schema = Schema.declare(tiny_target(n_layers=30), (*SAVED, "final"), "bfloat16")
    door = LocalDoor("data")
    dataset = Dataset.create(door, "demo", schema, exist_ok=True)
    with PartWriter(door, "demo", schema, "run") as writer:
        for number in range(30):
            writer.add(random_sample(schema, 5 + number, number))
        part = writer.close()
    dataset.commit([part], [], run_id="run")
    return make_states()


def test_the_held_out_conversations_are_a_version_and_the_demo_has_none_of_it(states: States) -> None:
    whole, demo = open_dataset("data/incident/states/demo"), open_dataset("data/demo")
    assert demo.latest() == demo.version(1)
    assert verify(whole).ok
    rows = plan_export(Asked(states.dataset, "speculators", Path("out"), None, None, SPLITS))
    later = {row.location.sample_id for row in rows.rows[rows.n_train :]}
    assert later == set(whole.snapshot("held-out").sample_ids)
    assert 0 < len(later) < 30
    assert make_states() == states


def test_the_list_is_what_the_script_wrote_and_the_trainer_splits_it_by_place(states: States) -> None:
    right, then = Path("right"), Path("then")
    run_export(plan_export(Asked(states.dataset, "speculators", right, None, None, SPLITS)), workers=1)
    write_positional(states.dataset, right, then)
    assert sorted(path.name for path in (then / "hidden_states").iterdir()) == sorted(
        path.name for path in (right / "hidden_states").iterdir()
    )
    snapshot = open_dataset("data/incident/states/demo").snapshot(2)
    for line in (right / "strata_rows.jsonl").read_text().splitlines():
        row = json.loads(line)
        listed, exported = states_of(then, row["row"]), states_of(right, row["row"])
        assert torch.equal(listed["token_ids"], exported["token_ids"])
        assert listed["hidden_states"].shape == exported["hidden_states"].shape
        sample = snapshot.read(row["sample_id"])
        for slot, name in enumerate(SAVED):
            got = listed["hidden_states"][:, slot].contiguous().view(torch.int16).numpy()
            assert np.array_equal(got, sample.tensors[name].view(np.int16))
    assert not (then / "strata_card.json").exists()


def test_the_export_refuses_it_and_check_names_it(states: States) -> None:
    *fc, target = SAVED
    with pytest.raises(ExportError, match="layer 27 of 30, not the last one"):
        plan_export(Asked(states.dataset, "speculators", Path("out"), tuple(fc), target))
    report = check(AskedCheck(dataset=states.dataset, trainer_wiring=AS_THEN))
    assert report.trained is not None
    assert report.trained.wiring is not None
    assert report.trained.wiring.fc == tuple(fc)
    (problem,) = report.errors
    assert problem.where == "target"


def test_the_picture_has_a_bar_and_a_figure_for_each_accuracy() -> None:
    class Between:
        low, high = 0.1, 0.3

    bars = [Bar("right", "reported <by it>", 0.25, None), Bar("as then", "served", 0.05, Between())]
    drawn = ElementTree.fromstring(draw(bars))
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"reported <by it>", "25.0%", "served", "5.0%", "draft trained as then"} <= set(texts)
    assert any(str(text).endswith(f"lines are {LEVEL:.0%} intervals") for text in texts)
    widths = [float(str(element.get("width"))) for element in drawn.iter("{http://www.w3.org/2000/svg}rect")][
        1:
    ]
    assert widths[0] == pytest.approx(5 * widths[1], rel=0.01)
