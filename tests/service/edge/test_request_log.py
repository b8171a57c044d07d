"""A request's id, its line, and what becomes of an error that nobody foresaw."""

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from datagen.store.errors import CorruptError
from service.app import create_app
from service.edge.request_log import JsonLines, log_config
from tests.service.serving import client_of, make_dataset, serving, settings_of


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [
        json.loads(JsonLines().format(record)) for record in caplog.records if record.name == "strata.service"
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("trainer-7.step_12", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("a b", False),
        ("é", False),
        ("", False),
    ],
)
def test_an_id_is_kept_where_it_is_a_plain_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: str, kept: bool
) -> None:
    caplog.set_level("INFO", "strata")
    with client_of(tmp_path) as client:
        answer = client.get("/v1/nowhere", headers=[(b"X-Request-Id", given.encode())])
    told = answer.headers["x-request-id"]
    assert (told == given) == kept
    assert answer.json()["request_id"] == told
    (line,) = lines(caplog)
    assert (line["request_id"], line["status"], line["path"]) == (told, 404, "/v1/nowhere")
    assert line["bytes"] == len(answer.content)


def test_a_line_holds_no_key_and_no_second_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "strata")
    with client_of(tmp_path) as client:
        client.get("/v1/a%0d%0ab?secret=1", headers={"Authorization": "Bearer strata_0f_secret"})
    (record,) = [record for record in caplog.records if record.name == "strata.service"]
    line = JsonLines().format(record)
    assert "\n" not in line
    assert "secret" not in line
    assert json.loads(line)["path"] == "/v1/a\r\nb"


def broken(root: Path) -> FastAPI:
    app = create_app(settings_of(root))

    @app.get("/v1/broken")
    def fail() -> None:
        raise ZeroDivisionError("what nobody should read: /etc/strata")

    @app.get("/v1/halfway")
    def stop() -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"x" * 100_000
            raise CorruptError("part 12 is damaged")

        return StreamingResponse(pieces(), headers={"Content-Length": "200000"})

    return app


def test_what_nobody_foresaw_is_a_500_that_says_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path, broken(tmp_path)) as url:
        answer = httpx.get(f"{url}/v1/broken")
        assert httpx.get(f"{url}/healthz").status_code == 200
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "nobody should read" not in answer.text
    failed = next(line for line in lines(caplog) if line["level"] == "error")
    assert failed["request_id"] == answer.json()["request_id"] == answer.headers["x-request-id"]
    assert "ZeroDivisionError" in str(failed["traceback"])


def test_a_body_that_fails_halfway_is_broken_off_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "strata")
    with serving(tmp_path, broken(tmp_path)) as url:
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            httpx.get(f"{url}/v1/halfway")
        counted = httpx.get(f"{url}/metrics").text
    assert "strata_checksum_failures_total 1.0" in counted
    assert 'strata_aborted_responses_total{why="unfinished"} 1.0' in counted
    failed, told = [line for line in lines(caplog) if line.get("path") == "/v1/halfway"]
    assert "part 12 is damaged" in str(failed["message"])
    assert told["complete"] is False


def test_the_log_is_json_lines(tmp_path: Path) -> None:
    config = log_config("debug")
    assert config["loggers"]["strata"]["level"] == "DEBUG"
    record = logging.LogRecord("strata.x", logging.WARNING, "", 0, "said %s", ("so",), None)
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["level"], line["logger"]) == ("said so", "warning", "strata.x")


def test_damage_that_is_found_before_the_first_byte_is_counted(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    next((tmp_path / "demo" / "index").iterdir()).write_bytes(b"x")
    with client_of(tmp_path) as client:
        assert client.get("/v1/datasets/demo/versions/1").status_code == 500
        assert "strata_checksum_failures_total 1.0" in client.get("/metrics").text
