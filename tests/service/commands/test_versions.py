"""`strata versions` as a person uses it: what it says, its exit codes, and `--json` for each action."""

import json
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from schemas.command import guarded
from service.commands.versions import command, grace, share
from tests.service.folders import content_of
from tests.service.serving import make_dataset


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two versions: four samples, then two more."""
    make_dataset(tmp_path, lengths=(1, 2, 3, 64))
    make_dataset(tmp_path, lengths=(5, 6), seed=50)
    return tmp_path


class Console:
    """Runs the command on one root."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._root = root
        self._capsys = capsys

    def said(self, *words: str, code: int = 0) -> str:
        """Return what is printed on both outputs; `@` in a word's place is the dataset."""
        words = tuple(
            word.replace("@", f"{self._root}/demo", 1) if word[:1] == "@" else word for word in words
        )
        assert guarded(command, words) == code
        captured = self._capsys.readouterr()
        return captured.out + captured.err

    def data(self, *words: str) -> Any:
        """Return what `--json` prints."""
        return json.loads(self.said(*words, "--json"))


@pytest.fixture
def console(root: Path, capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(root, capsys)


def test_the_whole_life_of_a_dataset(console: Console) -> None:
    assert console.said("name", "@@1", "v1") == "demo@1 is named v1\n"
    assert console.said("name", "@@1", "v1") == "demo@1 has the name v1\n"
    split = console.said("split", "@", "--split", "train=0.5", "--split", "validation=0.5")
    assert "demo@3: rule default, seed 0; 6 samples" in split
    assert "conversations" in split
    again = console.said("split", "@", "--split", "train=0.5", "--split", "validation=0.5")
    assert "demo@3: nothing to do, it has this rule already" in again
    assert "demo@3 would be changed: 4 samples of 11 tokens" in console.said(
        "drop", "@", "--shorter-than", "6", "--dry-run"
    )
    assert "demo@4: 4 samples of 11 tokens dropped; 2 samples" in console.said(
        "drop", "@", "--shorter-than", "6"
    )
    compared = console.said("compare", "@", "v1", "--limit", "1")
    assert "removed      3 samples, 6 tokens" in compared
    assert "more with --removed-cursor" in compared
    assert "demo@5: lists what version 1 lists" in console.said("rollback", "@@v1")
    assert console.said("gc", "condemn", "@", "--keep-versions", "1").count("parts/") == 1
    assert "nothing to sweep" in console.said("gc", "sweep", "@")
    assert "would be removed" in console.said("gc", "sweep", "@", "--grace", "0", "--dry-run")
    assert "removed" in console.said("gc", "sweep", "@", "--grace", "0")
    listed = console.said("list", "@")
    assert [line.split()[0] for line in listed.splitlines()] == ["version", "6", "5", "4", "3", "2", "1"]
    assert listed.splitlines()[-1].endswith("v1")
    assert listed.splitlines()[-2].endswith("(condemned)")
    assert "names        v1" in console.said("show", "@@v1")
    assert "their bytes may be gone" in console.said("show", "@@2")


def test_as_json(console: Console) -> None:
    assert console.data("name", "@@1", "v1")["changed"] is True
    assert [one["name"] for one in console.data("name", "@")["names"]] == ["v1"]
    assert console.data("split", "@", "--rule", "r", "--seed", "-3", "--split", "a=1")["rule"]["seed"] == -3
    assert console.data("show", "@")["shares"]["r"][0]["n_samples"] == 6
    assert console.data("drop", "@", "--shorter-than", "2")["n_dropped"] == 1
    assert console.data("compare", "@", "1")["removed"]["n_samples"] == 1
    assert console.data("rollback", "@@1")["to_version"] == 1
    assert console.data("gc", "condemn", "@", "--keep-versions", "1", "--grace", "1h")["step"] == "condemn"
    assert console.data("gc", "sweep", "@")["changed"] is False
    assert [one["number"] for one in console.data("list", "@", "--limit", "2")] == [6, 5]


def test_ids_come_from_words_and_files(console: Console, tmp_path: Path) -> None:
    added = console.data("compare", "@", "1", "2")["added"]["sample_ids"]
    file = tmp_path / "ids.txt"
    file.write_text(f"{added[0]}\n\n")
    found = console.data("drop", "@", "--ids", str(file), "--id", added[1])
    assert (found["n_dropped"], found["changed"]) == (2, True)
    again = console.data("drop", "@", "--ids", str(file))
    assert (again["n_gone_before"], again["changed"]) == (1, False)


REFUSED = [
    pytest.param(
        ("split", "@", "--split", "train=0.7", "--split", "val=0.7"), 2, "at most 1 in all", id="shares"
    ),
    pytest.param(("split", "@", "--split", "a b=0.7"), 2, "shares.0.split", id="split-name"),
    pytest.param(("split", "@", "--split", "train"), 2, "as train=0.9", id="no-share"),
    pytest.param(("split", "@@2", "--split", "train=1"), 2, "--expect N", id="version-not-taken"),
    pytest.param(("drop", "@"), 2, "expected one of sample_ids", id="drop-nothing"),
    pytest.param(("drop", "@", "--id", "0" * 64), 2, "no version has", id="unknown"),
    pytest.param(("drop", "@", "--ids", "no-such-file"), 2, "expected a file of ids", id="no-file"),
    pytest.param(
        ("drop", "@", "--shorter-than", "9", "--expect", "1"), 2, "got 2, made by append", id="stale"
    ),
    pytest.param(("rollback", "@"), 2, "write it as ROOT/DATASET@3", id="rollback-where"),
    pytest.param(("rollback", "@@9"), 2, "expected version 1 to 2, got 9", id="no-version"),
    pytest.param(("name", "@@1", "Upper"), 2, "lower-case letters", id="name"),
    pytest.param(("compare", "@", "1", "2", "--limit", "9999"), 2, "expected 0 to 1000", id="limit"),
    pytest.param(("gc", "sweep", "@", "--grace", "week"), 2, "expected a time as 7d", id="grace"),
    pytest.param(("show", "@@nobody"), 2, "there are: none", id="no-name"),
    pytest.param(("tidy", "@"), 2, "invalid choice", id="no-action"),
]


@pytest.mark.parametrize(("words", "code", "text"), REFUSED)
def test_what_is_refused_is_told_and_changes_nothing(
    console: Console, root: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    before = content_of(root)
    assert text in console.said(*words, code=code)
    assert text in "".join(
        str(problem) for problem in json.loads(console.said(*words, "--json", code=code))["problems"]
    )
    assert content_of(root) == before


def test_rules_that_clash_end_with_1(console: Console) -> None:
    console.said("split", "@", "--split", "train=1")
    assert "rename one" in console.said("split", "@", "--rule", "b", "--split", "train=1", code=1)
    assert "demo@4: rule b" in console.said("split", "@", "--rule", "b", "--split", "train=1", "--only")


def test_words_that_are_no_share_or_time() -> None:
    assert (share("a=1"), grace("90s"), grace("0d")) == (("a", 1.0), 90, 0)
    for text in ("", "a", "a=", "a=x"):
        with pytest.raises(ArgumentTypeError):
            share(text)
    for text in ("", "7", "d", "-1d", "1w"):
        with pytest.raises(ArgumentTypeError):
            grace(text)
