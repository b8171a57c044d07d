"""A pinned archive is in the cache whole and as pinned, or not at all."""

import hashlib
import sys
from pathlib import Path

import pytest

from deploy.demo import registry
from deploy.demo.registry import DemoError, Tarball, Wheel

LEAVES_ONE = [sys.executable, "-c", "import sys; open(sys.argv[1] + '/a.whl', 'w').write('body')", "{folder}"]
LEAVES_NONE = [sys.executable, "-c", "import sys; sys.exit('no route to the registry')", "{folder}"]


def test_the_archive_is_moved_to_its_place(tmp_path: Path) -> None:
    registry._download(LEAVES_ONE, tmp_path / "place", hashlib.sha256(b"body").hexdigest())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("place", "body")]


def test_another_archive_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"a\.whl: expected sha256 0000, got 230d8358"):
        registry._download(LEAVES_ONE, tmp_path / "place", "0000")
    assert not list(tmp_path.iterdir())


def test_a_failed_fetch_says_what_the_client_said(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"(?s)exit status 1 and 0 files.*no route to the registry"):
        registry._download(LEAVES_NONE, tmp_path / "place", "0000")
    assert not list(tmp_path.iterdir())


def test_what_is_in_the_cache_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_download", lambda *_: pytest.fail("fetched again"))
    place = tmp_path / "data" / "cache" / "small-1.whl"
    place.parent.mkdir(parents=True)
    place.touch()
    assert Wheel("small", "1", "0000").fetch().resolve() == place


def test_without_npm_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoError, match=r"@scope/small@1: npm is not installed; install Node\.js"):
        Tarball("@scope/small", "1", "0000").fetch()
    assert [path.name for path in (tmp_path / "data" / "cache").iterdir()] == [".scope-small-1.tgz.lock"]
