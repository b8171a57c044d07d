"""`ROOT/DATASET@NAME`: every command that takes a version takes its name."""

import json
from pathlib import Path

import pytest

from datagen.commands.show import command as show
from datagen.commands.verify import command as verify
from datagen.store.dataset import Dataset
from datagen.store.errors import NotFoundError
from datagen.store.local import LocalDoor
from datagen.wiring.inputs import read_dataset
from tests.builders import tiny_schema
from tests.datagen.store.real_parts import commit_samples, samples_of

SCHEMA = tiny_schema()


@pytest.fixture
def reference(tmp_path: Path) -> str:
    """Two versions, the first named."""
    dataset = Dataset.create(LocalDoor(tmp_path), "demo", SCHEMA, exist_ok=False)
    commit_samples(dataset, SCHEMA, samples_of(SCHEMA, [3, 4]))
    commit_samples(dataset, SCHEMA, samples_of(SCHEMA, [5], seed=9))
    dataset.name_version("paper-v1", 1)
    return f"{tmp_path}/demo@paper-v1"


def test_show_verify_and_check_read_the_named_version(
    reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show([reference, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"]["number"] == 1
    assert verify([reference, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["dataset"], told["versions"], told["samples"]) == (reference, 1, 2)
    facts = read_dataset(reference)
    assert (facts.version.number, facts.reference) == (1, reference.replace("paper-v1", "1"))


def test_a_name_that_is_not_there_lists_those_there_are(reference: str) -> None:
    for read in (lambda text: show([text]), lambda text: verify([text]), read_dataset):
        with pytest.raises(NotFoundError, match="there are: paper-v1"):
            read(f"{reference}-2")
