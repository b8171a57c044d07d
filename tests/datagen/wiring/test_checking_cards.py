"""Cards that `strata check` writes and is given: once, read back, and compared."""

import json
from pathlib import Path

import pytest

from datagen.commands import check
from datagen.errors import ConfigError
from datagen.wiring import checking
from datagen.wiring.cards import MAX_CARD_BYTES
from datagen.wiring.inputs import MAX_CONFIG_BYTES
from schemas.card import CARD_FILE, Card
from tests.datagen.asking_commands import SGLANG, Capture, in_words, told
from tests.incident.makers import MEANT, draft_config, kimi, make_dataset, wiring_file


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_dataset(tmp_path_factory.mktemp("data"), MEANT)


def saving(folder: Path, dataset: str, card: Path, *more: object) -> tuple[object, ...]:
    return ("--dataset", dataset, "--trainer-wiring", wiring_file(folder), "--save-card", card, *more)


def test_a_card_is_written_once_and_read_back(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card, draft = tmp_path / "my card.json", draft_config(tmp_path)
    words = saving(tmp_path, dataset, card, "--draft-config", draft)
    code, text = in_words(capsys, check.command, *words)
    assert (code, text.splitlines()[-1]) == (0, f"card     {card}")
    written = card.read_bytes()
    saved = Card.from_json(written, "card")
    assert saved.wiring.fc == MEANT[:-1]
    assert saved.dataset is not None
    assert (saved.dataset.name, saved.dataset.version) == ("states", 1)
    assert saved.contract is not None
    assert saved.contract.vocabulary.draft_size == 100
    # Again: it is there already, and equal.
    assert told(capsys, check.command, *words)[1]["card"] == str(card)
    assert card.read_bytes() == written
    served = ("--card", card, "--server", SGLANG, "--draft-config", draft)
    code, said = told(capsys, check.command, "--dataset", dataset, *served)
    assert (code, said["ok"]) == (0, True)
    assert told(capsys, check.command, *served)[0] == 0


def test_another_card_is_not_written_over(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card = tmp_path / "card.json"
    assert told(capsys, check.command, *saving(tmp_path, dataset, card))[0] == 0
    written = card.read_bytes()
    other = saving(tmp_path, dataset, card, "--draft-config", draft_config(tmp_path))
    code, said = told(capsys, check.command, *other)
    assert (code, "or this very card, got another" in said["error"]) == (2, True)
    assert card.read_bytes() == written
    card.write_text("a thesis")
    assert told(capsys, check.command, *other)[0] == 2
    assert card.read_text() == "a thesis"


def test_a_card_is_not_written_where_something_is_wrong(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    card = tmp_path / "card.json"
    wrong = wiring_file(tmp_path, target="layer59")
    words = ("--dataset", dataset, "--trainer-wiring", wrong, "--save-card", card)
    code, text = in_words(capsys, check.command, *words)
    assert (code, text.splitlines()[-1]) == (1, "no card is written")
    assert told(capsys, check.command, *words)[1]["card"] is None
    assert not card.exists()
    right = saving(tmp_path, dataset, tmp_path / "wiring.toml" / "card.json")
    assert told(capsys, check.command, *right)[0] == 2


def test_a_card_lies_in_a_folder_beside_a_drafts_config(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    (tmp_path / "draft").mkdir()
    code, said = told(capsys, check.command, *saving(tmp_path, dataset, tmp_path / "draft"))
    assert (code, said["card"]) == (0, str(tmp_path / "draft" / CARD_FILE))
    assert told(capsys, check.command, "--dataset", dataset, "--card", tmp_path / "draft")[0] == 0


def test_a_trainer_is_compared_with_the_card(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card = tmp_path / "card.json"
    told(capsys, check.command, *saving(tmp_path, dataset, card, "--draft-config", draft_config(tmp_path)))
    assert told(capsys, check.command, "--card", card, "--trainer-wiring", wiring_file(tmp_path))[0] == 0
    other = wiring_file(tmp_path, ("layer3", "layer59", "layer31"), "final", norm=False)
    code, said = told(capsys, check.command, "--card", card, "--trainer-wiring", other)
    assert code == 1
    errors = {problem["where"] for problem in said["problems"] if problem["severity"] == "error"}
    assert errors == {"fc", "fc[1]", "fc[2]", "target"}
    assert all(problem["repair"] for problem in said["problems"] if problem["severity"] == "error")


def test_a_server_is_compared_with_the_card_whatever_a_trainer_takes(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    """The weights are the card's: a trainer that would take what is served does not make it right."""
    card, draft = tmp_path / "card.json", draft_config(tmp_path, (3, 31, 58))
    told(capsys, check.command, *saving(tmp_path, dataset, card))
    trainer = wiring_file(tmp_path, ("layer3", "layer31", "layer58"))
    words = ("--card", card, "--trainer-wiring", trainer, "--server", SGLANG, "--draft-config", draft)
    code, said = told(capsys, check.command, *words)
    errors = {problem["where"] for problem in said["problems"] if problem["severity"] == "error"}
    assert (code, errors) == (1, {"fc", "fc[2]", "served fc", "served fc[2]"})


def test_no_card_is_made_of_what_is_wrong_or_too_little(tmp_path: Path, dataset: str) -> None:
    wrong = checking.Asked(dataset=dataset, trainer_wiring=wiring_file(tmp_path, target="layer59"))
    for asked in (wrong, checking.Asked(dataset=dataset, server=SGLANG)):
        with pytest.raises(ConfigError, match="mean the same for a card"):
            checking.card_of(checking.check(asked))


def test_a_drafts_config_is_compared_with_the_contract_of_the_card(
    tmp_path: Path, capsys: Capture, dataset: str
) -> None:
    """Tensors in their places, and a norm flag of another value: the second silent failure."""
    card, draft = tmp_path / "card.json", draft_config(tmp_path)
    told(capsys, check.command, *saving(tmp_path, dataset, card, "--draft-config", draft))
    content = {**json.loads(draft.read_text()), "norm_before_residual": True}
    draft.write_text(json.dumps(content))
    code, said = told(capsys, check.command, "--dataset", dataset, "--card", card, "--draft-config", draft)
    (problem,) = [problem for problem in said["problems"] if problem["severity"] == "error"]
    assert (code, problem["where"]) == (1, "norm_before_residual")


def test_a_card_of_another_format_or_target_is_refused(tmp_path: Path, capsys: Capture, dataset: str) -> None:
    card = tmp_path / "card.json"
    told(capsys, check.command, *saving(tmp_path, dataset, card))
    other = make_dataset(tmp_path, MEANT, kimi(weights="3"))
    code, said = told(capsys, check.command, "--dataset", other, "--card", card)
    errors = [problem["where"] for problem in said["problems"] if problem["severity"] == "error"]
    assert (code, errors) == (1, ["target.weights.sha256"])
    card.write_bytes(card.read_bytes().replace(b"strata.card.v1", b"strata.card.v2"))
    code, said = told(capsys, check.command, "--dataset", dataset, "--card", card)
    assert (code, said["problems"][0]["where"]) == (2, "format")
    code, text = in_words(capsys, check.command, "--dataset", dataset, "--card", draft_config(tmp_path))
    assert (code, text.count("\n")) == (2, 2)
    assert "format: expected 'strata.card.v1', got no format (take the card as it was saved" in text
    card.write_bytes(b" " * (MAX_CARD_BYTES + 1))
    assert "too large" in told(capsys, check.command, "--dataset", dataset, "--card", card)[1]["error"]
    assert MAX_CARD_BYTES < MAX_CONFIG_BYTES
