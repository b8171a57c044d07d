"""Settings: which source wins, and every wrong one at once."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from service.errors import SettingsError
from service.settings import Settings, load_settings


def refused(flags: Mapping[str, str], file: Path | None = None, **environment: str) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags, file, environment)
    return {problem.where: f"{problem.message} ({problem.repair})" for problem in caught.value.problems}


def test_a_flag_wins_over_a_variable_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        f'root = "{tmp_path}"\nport = 1\nworkers = 2\npresign_seconds = 3\ndatasets = ["a", "b"]\n'
    )
    variables = {"STRATA_SERVE_PORT": "10", "STRATA_SERVE_WORKERS": "20", "STRATA_ENGINE__MODEL": "m"}
    settings = load_settings({"port": "100"}, file, variables)
    assert (settings.port, settings.workers, settings.presign_seconds) == (100, 20, 3)
    assert settings.datasets == ("a", "b")
    assert load_settings({"root": str(tmp_path), "datasets": "a, b"}, None, {}).datasets == ("a", "b")


def test_an_empty_variable_is_none(tmp_path: Path) -> None:
    assert load_settings({"root": str(tmp_path)}, None, {"STRATA_SERVE_PORT": ""}).port == 8350


def test_every_wrong_setting_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('workers = 0\nrot = "x"\n')
    told = refused(
        {"port": "x", "anonymous": "all"}, file, STRATA_SERVE_PRT="1", STRATA_SERVE_LOG_LEVEL="loud"
    )
    assert set(told) == {"root", "workers", "rot", "port", "anonymous", "STRATA_SERVE_PRT", "log_level"}
    assert told["root"].startswith("expected this field, got none")
    assert "did you mean root" in told["rot"]
    assert told["port"].startswith("expected a valid integer, got 'x'")
    assert "did you mean STRATA_SERVE_PORT" in told["STRATA_SERVE_PRT"]


@pytest.mark.parametrize(
    ("content", "got"), [(None, "no such file"), (b"root = ", "invalid value"), (b"\xff", "decode")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, got: str) -> None:
    file = tmp_path / "serve.toml"
    if content is not None:
        file.write_bytes(content)
    assert got in refused({}, file)[str(file)].lower()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "node-7"])
def test_another_address_needs_keys_or_a_word(tmp_path: Path, host: str) -> None:
    open_to_all = {"root": str(tmp_path), "host": host}
    assert "--anonymous" in refused(open_to_all)["host"]
    assert load_settings({**open_to_all, "anonymous": "read"}, None, {}).anonymous == "read"
    assert load_settings({**open_to_all, "keys": "keys.json"}, None, {}).keys == Path("keys.json")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_needs_nothing(tmp_path: Path, host: str) -> None:
    assert load_settings({"root": str(tmp_path), "host": host}, None, {}).is_loopback


def test_a_root_must_be_there_and_a_bucket_named(tmp_path: Path) -> None:
    assert "no folder" in refused({"root": str(tmp_path / "none")})["root"]
    assert "not listed" in refused({"root": "s3://bucket/states"})["datasets"]
    assert load_settings({"root": "s3://bucket", "datasets": "a"}, None, {}).datasets == ("a",)
    assert "got '..'" in refused({"root": str(tmp_path), "datasets": "..,a"})["datasets"]
    assert not load_settings({"root": f"file://{tmp_path}"}, None, {}).is_bucket


def test_a_value_that_is_given_is_checked_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="port"):
        Settings(root=str(tmp_path), port=70000)
