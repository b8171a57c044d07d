"""What is told at the end: the table and the verdicts, and that three arguments make it longer or shorter."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from datagen.replay.score import Interval
from datagen.wiring.checking import Asked as AskedCheck
from datagen.wiring.checking import Report, check
from deploy.demo.incident import __main__ as incident
from deploy.demo.incident.replayed import Replayed
from deploy.demo.incident.training import Trained
from deploy.demo.registry import DemoError
from tests.incident.makers import MEANT, SAVED, draft_config, make_dataset

EQUAL = Interval(0.134, 0.12, 0.15)
RIGHT = Replayed(EQUAL, EQUAL, EQUAL, ("trained with what was meant",), True)
THEN = Replayed(
    Interval(0.195, 0.18, 0.21),
    Interval(0.124, 0.11, 0.14),
    Interval(0.006, 0.004, 0.008),
    ("trained with embed first", "expect 0.6%"),
    False,
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    folder = tmp_path_factory.mktemp("told")
    told = {
        name: check(
            AskedCheck(
                dataset=make_dataset(folder / name, tensors),
                trainer="speculators==0.4.0",
                server="sglang==0.5.23",
                draft_config=draft_config(folder),
            )
        )
        for name, tensors in (("right", MEANT), ("as then", SAVED))
    }
    assert not told["right"].errors
    assert told["as then"].errors
    return told


def test_each_draft_is_a_row_with_its_verdict_and_the_picture_is_written(
    reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incident, "PICTURE", tmp_path / "incident.svg")
    drafts = {"right": Trained(tmp_path, 0.134, 42.9), "as then": Trained(tmp_path, 0.193, 45.6)}
    out = io.StringIO()
    console = Console(file=out, width=200, highlight=False)
    incident.tell(console, drafts, reports, {"right": RIGHT, "as then": THEN})
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "right 13.4% 13.4% 13.4% 13.4% they mean the same" in lines
    (row,) = [line for line in lines if line.startswith("as then 19.3% 19.5% 12.4% 0.6%")]
    assert row.endswith("problems")
    assert "as then: trained with embed first; expect 0.6%" in lines
    for problem in reports["as then"].errors:
        if problem.kind != "slot":
            assert any(line.startswith(f"check: {problem.where}: ") for line in lines)
    drawn = (tmp_path / "incident.svg").read_text()
    assert drawn.count("<rect") == 1 + 8
    assert "0.6%" in drawn


@pytest.mark.parametrize("words", [["--steps", "many"], ["--samples", "1.5"], ["--fast"]], ids=str)
def test_wrong_arguments_end_before_anything_is_made(
    words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        incident.main(words)
    assert ended.value.code == 2
    assert list(tmp_path.iterdir()) == []


def test_without_the_demo_it_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DemoError, match="`make demo` makes it"):
        incident.main([])
