"""The console command as its users meet it: exit codes, all problems at once, JSON and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from datagen.cli import main
from datagen.errors import ConfigError
from schemas.command import guarded
from schemas.problem import Problem


def strata(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["strata", *words])
    return main()


def failing(*_: object) -> int:
    raise ConfigError("no good", [Problem(where="a", kind="k", message="expected 1, got 2", repair="add 1")])


@pytest.mark.parametrize("words", [(), ("--help",)], ids=["nothing", "help"])
def test_alone_it_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert strata(monkeypatch, *words) == 0
    told = capsys.readouterr().out
    for name in ("run", "plan", "show", "verify"):
        assert f"\n  {name} " in told


@pytest.mark.parametrize("name", ["run", "plan", "show", "verify"])
def test_every_command_has_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        strata(monkeypatch, name, "--help")
    assert not ended.value.code
    told = capsys.readouterr().out
    assert told.startswith(f"usage: strata {name} ")
    assert told.count("usage:") == 1


def test_a_command_that_is_not_there_is_told_as_json_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert strata(monkeypatch, "shw") == 2
    told = capsys.readouterr()
    assert (told.out, "'shw'" in told.err) == ("", True)
    assert strata(monkeypatch, "shw", "--json") == 2
    told = capsys.readouterr()
    (problem,) = json.loads(told.out)["problems"]
    assert ("show" in problem["message"], told.err) == (True, "")


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("run", "ray", "datagen"),
        ("plan", "pydantic_settings", "datagen"),
        ("show", "pyarrow", "datagen"),
        ("serve", "fastapi", "service"),
        ("serve", "uvicorn", "service"),
    ],
)
def test_a_command_whose_packages_are_not_there_names_its_extra(
    command: str, missing: str, extra: str
) -> None:
    """As where only the client is installed."""
    code = f"import sys; sys.modules[{missing!r}] = None; from datagen.cli import main; sys.exit(main())"
    words = [command, "--root", "data"]
    told = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (2, "")
    repair = f"pip install 'strata-hidden-states[{extra}]'"
    message = f"expected the packages of the extra '{extra}', got no {missing}"
    assert told.stderr == f"strata: this command is not installed\n  strata {command}: {message} ({repair})\n"


def test_an_error_is_words_on_standard_error_or_json_on_standard_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert guarded(failing, []) == 2
    assert capsys.readouterr() == ("", "strata: no good\n  a: expected 1, got 2 (add 1)\n")
    assert guarded(failing, ["--json"]) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["problems"][0]["where"] == "a"
    assert told.err == ""


def test_an_output_that_cannot_be_written_is_an_error_and_a_reader_that_left_is_none(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def printing(_: object) -> int:
        print("result")  # noqa: T201
        return 1

    gone = (tmp_path / "gone").open("w")
    monkeypatch.setattr(sys, "stdout", gone)
    for error, code, told in ((BrokenPipeError(), 0, ""), (OSError(28, "disk full"), 2, "disk full")):

        def flush(error: OSError = error) -> None:
            raise error

        monkeypatch.setattr(gone, "flush", flush, raising=False)
        assert guarded(printing, []) == code
        assert told in capfd.readouterr().err
    monkeypatch.undo()
    gone.close()


def test_ctrl_c_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    assert guarded(interrupted, []) == 130
    assert capsys.readouterr().err == "strata: stopped\n"


@pytest.mark.parametrize(("module", "library"), [("datagen.run", "ray"), ("service", "fastapi")])
def test_ctrl_c_while_a_command_is_loaded_is_no_traceback(module: str, library: str) -> None:
    code = f"""
import runpy, sys

class Stopped:
    def find_spec(self, name, *_):
        if name == {library!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stopped())
runpy.run_module({module!r}, run_name="__main__")
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (130, "strata: stopped\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "nowhere/data"), "no dataset 'data'"),
        (("show", "nowhere/data@-x"), "expected a version's number from 1, or its name, got '-x'"),
        (("show", "ftp://host/data"), "expected a folder, file:///, s3://"),
        (("show",), "required: ROOT/DATASET[@VERSION]"),
        (("verify", "nowhere/data"), "no dataset 'data'"),
        (("verify", "nowhere/data", "--workers", "0"), "expected a number from 1, got '0'"),
        (("run",), "output.root: expected this field, got none"),
        (("plan", "--config", "missing.toml"), "missing.toml: expected a TOML file, got: no such file"),
    ],
    ids=[
        "no dataset",
        "no version",
        "no root",
        "no argument",
        "verify nothing",
        "no worker",
        "no settings",
        "no file",
    ],
)
def test_what_cannot_be_tried_is_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert strata(monkeypatch, *words) == 2
    assert told in capsys.readouterr().err
    assert strata(monkeypatch, *words, "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["problems"]
    assert list(tmp_path.iterdir()) == []
