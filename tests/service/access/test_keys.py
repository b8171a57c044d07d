"""Keys are kept as hashes, changed as a whole, refused when damaged, and heeded while a service runs."""

import json
import os
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.access.keys import KeyFile, Keys
from service.errors import KeyFileError


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def test_the_secret_is_nowhere_but_in_what_is_returned(file: KeyFile) -> None:
    made = file.create("trainer", "read")
    secret = made.written.rsplit("_", 1)[1]
    written = {path.name: path.read_text() for path in file.path.parent.iterdir()}
    assert len(secret) == 64
    assert [name for name, text in written.items() if secret in text] == []
    assert secret not in repr(made.key)
    assert file.read().with_secret(made.written) == made.key


def test_only_its_owner_reads_it_and_nothing_is_left_beside_it(file: KeyFile) -> None:
    file.create("a", "read")
    file.create("b", "admin")
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert {path.name for path in file.path.parent.iterdir()} == {"keys.json", "keys.json.lock"}


def _other_id(written: str) -> str:
    start, _, secret = written.split("_")
    return f"{start}_{'0' * 16}_{secret}"


WRONG: dict[str, Callable[[str], str]] = {
    "a wrong secret": lambda written: written[:-1] + ("0" if written[-1] != "0" else "1"),
    "an unknown id": _other_id,
    "no secret": lambda written: written.rsplit("_", 1)[0],
    "more of it": lambda written: written + "0",
    "a line more": lambda written: written + "\n",
    "upper case": lambda written: written.upper(),
    "not ASCII": lambda written: written[:-1] + "é",
    "nothing": lambda _: "",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_nearly_a_key_opens_nothing(file: KeyFile, wrong: str) -> None:
    made = file.create("trainer", "read")
    assert file.read().with_secret(WRONG[wrong](made.written)) is None


@pytest.mark.parametrize("wrong", ["none", "a wrong secret", "an unknown id"])
def test_every_secret_is_compared_in_constant_time(
    file: KeyFile, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id that is unknown is compared too, so that how long a refusal takes does not tell of ids."""
    made = file.create("trainer", "read")
    compared: list[tuple[str, str]] = []

    def compare_digest(got: str, kept: str) -> bool:
        compared.append((got, kept))
        return got == kept

    monkeypatch.setattr("service.access.keys.hmac.compare_digest", compare_digest)
    found = file.read().with_secret(made.written if wrong == "none" else WRONG[wrong](made.written))
    assert len(compared) == 1
    assert (found is not None) == (wrong == "none")


def test_expiry_and_revocation(file: KeyFile) -> None:
    key = file.create("trainer", "read", lives=timedelta(days=30)).key
    assert key.expires_at is not None
    before, after = key.expires_at - timedelta(seconds=1), key.expires_at
    assert (key.state(before), key.state(after)) == ("valid", "expired")
    revoked = file.revoke(key.id[:6])
    assert (revoked.state(before), revoked.state(after)) == ("revoked", "revoked")
    assert file.revoke(key.id) == revoked
    assert file.create("x", "read").key.state(datetime.now(UTC) + timedelta(days=36500)) == "valid"


def test_a_key_is_revoked_by_an_id_that_names_just_one(file: KeyFile) -> None:
    keys = [file.create(f"trainer {i}", "read").key for i in range(17)]
    shared = next(a.id[0] for a in keys for b in keys if a.id[0] == b.id[0] and a.id != b.id)
    for wrong in (shared, "", "zz"):
        with pytest.raises(KeyFileError, match="expected the beginning of one key's id"):
            file.revoke(wrong)
    assert all(key.revoked_at is None for key in file.read().keys)


def test_another_holder_of_the_file_sees_each_change(file: KeyFile) -> None:
    made = file.create("trainer", "read")
    others = [KeyFile(file.path), KeyFile(file.path)]
    assert all(other.read().with_secret(made.written) for other in others)
    file.revoke(made.key.id)
    for other in others:
        found = other.read().with_secret(made.written)
        assert found is not None
        assert found.revoked_at is not None
    second = file.create("another", "manage")
    assert all(other.read().with_secret(second.written) for other in others)


def test_it_is_not_read_again_while_it_is_the_same(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.create("trainer", "read")
    file.read()
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read again"))
    assert len(file.read().keys) == 1


def test_many_at_once_lose_no_key(file: KeyFile) -> None:
    """Each change reads and replaces the file under its lock."""
    threads = [
        threading.Thread(target=lambda n=n: KeyFile(file.path).create(f"k{n}", "read")) for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key.name for key in file.read().keys} == {f"k{n}" for n in range(12)}


def test_a_failed_write_leaves_the_file_as_it_was(file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.create("trainer", "read")
    before = file.path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(KeyFileError, match="No space left on device"):
        file.create("another", "read")
    assert file.path.read_bytes() == before
    assert {path.name for path in file.path.parent.iterdir()} == {"keys.json", "keys.json.lock"}


def test_a_damaged_file_is_refused_with_all_its_problems(file: KeyFile) -> None:
    file.create("trainer", "read")
    data = json.loads(file.path.read_text())
    key = data["keys"][0]
    bad = {**key, "scope": "root", "sha256": "00", "datasets": ["../up"], "comment": "hello"}
    file.path.write_text(json.dumps({**data, "keys": [key, bad]}))
    file.path.chmod(0o660)
    with pytest.raises(KeyFileError) as caught:
        KeyFile(file.path).read()
    assert {problem.where for problem in caught.value.problems} == {
        str(file.path),
        "keys.1.scope",
        "keys.1.sha256",
        "keys.1.datasets.0",
        "keys.1.comment",
    }


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"keys": []}', '{"format": "x", "keys": []}', "\0"])
def test_another_file_is_refused(file: KeyFile, text: str) -> None:
    file.path.write_text(text)
    file.path.chmod(0o600)
    with pytest.raises(KeyFileError, match="is not a sound key file"):
        file.read()
    with pytest.raises(KeyFileError, match="is not a sound key file"):
        file.create("trainer", "read")
    assert file.path.read_text() == text


def test_one_id_twice_is_refused(file: KeyFile) -> None:
    key = file.create("trainer", "read").key
    file.path.write_bytes(Keys(keys=(key, key)).to_json())
    with pytest.raises(KeyFileError, match=f"key {key.id}: expected one key of this id, got 2"):
        file.read()


def test_no_file_says_how_to_make_one(file: KeyFile) -> None:
    for act in (file.read, lambda: file.revoke("00")):
        with pytest.raises(KeyFileError, match=r"No such file.*strata keys create"):
            act()


@pytest.mark.parametrize(
    ("name", "datasets"), [("", ("*",)), ("a" * 101, ("*",)), ("a", ("..",)), ("a", ("a/b",)), ("a", ("**",))]
)
def test_a_key_that_is_off_is_not_made(file: KeyFile, name: str, datasets: tuple[str, ...]) -> None:
    with pytest.raises(KeyFileError, match="cannot make the key"):
        file.create(name, "read", datasets)
    assert not file.path.exists()
