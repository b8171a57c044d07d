"""`strata keys` as a person uses it."""

import json
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from schemas.command import guarded
from service.access.keys import KeyFile
from service.commands.keys import command, lifetime


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert guarded(command, words) == 0
    return capsys.readouterr().out


def test_make_list_and_revoke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.json"
    said = run(capsys, "create", "trainer", "--keys", str(file), "--dataset", "demo", "--expires", "30d")
    written = said.splitlines()[0]
    key = KeyFile(file).read().with_secret(written)
    assert key is not None
    assert (key.name, key.scope, key.datasets) == ("trainer", "read", ("demo",))
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days == 30
    listed = run(capsys, "list", "--keys", str(file))
    assert key.id in listed
    assert "valid" in listed
    assert written.rsplit("_", 1)[1] not in listed
    assert key.sha256 not in listed
    assert "revoked" in run(capsys, "revoke", key.id[:8], "--keys", str(file))


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "keys.json")
    made = json.loads(run(capsys, "create", "boss", "--scope", "admin", "--keys", file, "--json"))
    assert (made["scope"], made["datasets"], made["expires_at"]) == ("admin", ["*"], None)
    (listed,) = json.loads(run(capsys, "list", "--keys", file, "--json"))
    assert {**listed, "key": made["key"]} == made
    (revoked,) = json.loads(run(capsys, "revoke", made["id"], "--keys", file, "--json"))
    assert revoked["state"] == "revoked"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list"], "expected a key file, got No such file or directory"),
        (["revoke", "00"], "expected a key file"),
        (["create", "x", "--scope", "root"], "invalid choice: 'root'"),
        (["create", "x", "--expires", "soon"], "expected a time as 30d, 12h or 90m, or never, got 'soon'"),
        (["create", "x", "--dataset", ".."], "expected letters, digits"),
        ([], "the following arguments are required"),
    ],
)
def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert guarded(command, [*words, *(["--keys", str(tmp_path / "keys.json")] if words else [])]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "keys.json").exists()


@pytest.mark.parametrize("text", ["", "d", "0d", "-1d", "30", "30 d", "30D", "1.5h", "٣d"])
def test_no_lifetime(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        lifetime(text)
