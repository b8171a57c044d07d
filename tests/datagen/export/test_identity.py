"""What tells two exports apart is said fact by fact, once."""

from datagen.export.identity import differences
from schemas.record import canonical_json


def of_version(number: int, rows: int, splits: list[str]) -> bytes:
    card = {"dataset": {"name": "demo", "version": number}}
    return canonical_json({"card": card, "rows": rows, "splits": splits})


def told(meant: bytes, found: bytes) -> dict[str, str | None]:
    return {problem.where: problem.repair for problem in differences(meant, found)}


def test_another_version_is_told_with_the_way_back_and_without_what_follows_from_it() -> None:
    assert told(of_version(2, 9, []), of_version(1, 8, [])) == {
        "card.dataset.version": "say the version, --dataset .../demo@1"
    }
    assert told(of_version(2, 9, []), of_version(2, 8, ["train"])) == {"rows": None, "splits": None}
    assert told(of_version(2, 9, []), of_version(2, 9, [])) == {}


def test_what_cannot_be_read_differs_in_everything() -> None:
    assert told(of_version(2, 9, []), b"{").keys() >= {"card.dataset.version", "splits"}
