"""What the client asks again for, after which pauses, and what it does not."""

import time

import pytest

from schemas.problem import Problem
from service.client import errors
from service.client.transport import Patience
from tests.service.client.misbehaving import (
    Action,
    answer_bytes,
    answering,
    misbehaving,
    problem,
    sending,
    stall,
)
from tests.service.client.told import (
    JSON,
    NAMES,
    RIGHT,
    RIGHT_BYTES,
    SAMPLE,
    body_of,
    client_of,
    fetched,
    refused,
    sent,
    version_of,
)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(sending(b""), id="hangs up"),
        pytest.param(sending(RIGHT_BYTES[:-1]), id="a byte short"),
        pytest.param(sending(RIGHT_BYTES[:600]), id="cut early"),
        pytest.param(sending(b"HTTP/1.1 200 OK\r\nContent-Length: 9"), id="cut after the length"),
        pytest.param(sending(b"HTTP/1.1 200 OK\r\nServ"), id="cut before the length"),
        pytest.param(problem(503), id="503"),
        pytest.param(problem(502), id="502"),
        pytest.param(problem(504), id="504"),
        pytest.param(problem(429, {"Retry-After": "0"}), id="429"),
    ],
)
def test_what_may_go_well_next_time_is_asked_again(first: Action) -> None:
    server = fetched([first, RIGHT], timeout=10)
    assert len(server.heard) == 2


def test_a_silent_service_is_given_up_after_the_timeout_and_asked_again() -> None:
    server = fetched([stall, RIGHT], timeout=1)
    assert (len(server.heard), server.n_connections) == (2, 2)


def test_retries_end_and_the_error_says_what_was_wrong() -> None:
    error, server = refused([sending(b"")], errors.UnreachableError)
    assert len(server.heard) == 3
    assert server.url in str(error)
    error, server = refused([problem(503)], errors.FaultError)
    assert len(server.heard) == 3
    assert isinstance(error, errors.FaultError)
    assert error.status == 503


def test_a_long_wait_is_told_to_whoever_has_set_up_no_log(caplog: pytest.LogCaptureFixture) -> None:
    for n_failures in (6, 8):
        caplog.clear()
        fetched([*[problem(503)] * n_failures, RIGHT], retries=8)
        told = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(told) == max(0, n_failures - 6)


def test_nothing_listens() -> None:
    with misbehaving([JSON]) as server:
        pass
    with (
        client_of(server) as client,
        pytest.raises(errors.UnreachableError, match="check that the service runs"),
    ):
        client.datasets()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.InvalidError),
        (401, errors.DeniedError),
        (403, errors.DeniedError),
        (404, errors.NotFoundError),
        (409, errors.RefusedError),
        (410, errors.NotFoundError),
        (413, errors.InvalidError),
        (416, errors.InvalidError),
        (422, errors.InvalidError),
        (418, errors.AnsweredError),
        (500, errors.FaultError),
    ],
)
def test_an_error_of_the_service_is_not_asked_again(status: int, error: type[errors.AnsweredError]) -> None:
    told = Problem(where="fc[0]", kind="slot", message="expected layer2, got embed", role="fc", slot=0)
    answer = problem(status, {"X-Request-Id": "r-1"}, [told.model_dump(mode="json")])
    caught, server = refused([answer, RIGHT], error)
    assert isinstance(caught, errors.AnsweredError)
    assert (caught.problems, caught.status, caught.request_id) == ((told,), status, "r-1")
    assert len(server.heard) == 1


def test_an_error_page_of_a_proxy_is_told_by_its_status() -> None:
    caught, _ = refused([answering(500, b"<html>oh no</html>")], errors.FaultError)
    assert "<html>oh no" in str(caught)
    assert caught.problems == ()


def test_retry_after_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with misbehaving([problem(429, {"Retry-After": "7"}), JSON]) as server, client_of(server) as client:
        client.datasets()
    assert pauses == [7.0]


def test_retry_after_beyond_patience_is_told_at_once() -> None:
    caught, server = refused([problem(429, {"Retry-After": "3600"}), RIGHT], errors.LimitError)
    assert isinstance(caught, errors.LimitError)
    assert (caught.retry_after_seconds, len(server.heard)) == (3600.0, 1)


@pytest.mark.parametrize("attempt", range(12))
def test_pauses_grow_and_end(attempt: int) -> None:
    patience = Patience()
    longest = min(30.0, 0.25 * 2**attempt)
    assert all(longest / 2 <= patience.pause(attempt) <= longest for _ in range(20))


def test_a_wrong_checksum_is_asked_again_once_and_then_names_the_tensor() -> None:
    damaged = body_of()[:-1] + bytes([body_of()[-1] ^ 1])
    assert len(fetched([sent(damaged), RIGHT]).heard) == 2
    error, server = refused([sent(damaged), sent(damaged), RIGHT], errors.ChecksumError)
    assert [item.where for item in error.problems] == ["layer2"]
    assert len(server.heard) == 2


def test_without_check_bytes_are_taken_as_they_come() -> None:
    damaged = body_of()[:-1] + bytes([body_of()[-1] ^ 1])
    with misbehaving([sent(damaged)]) as server, client_of(server, check=False) as client:
        rows = version_of(client).tensors(SAMPLE.sample_id, NAMES)
    assert rows.tensors["layer2"].tobytes() == damaged[-70 * 16 :]


def test_a_small_answer_that_is_cut_is_asked_again_even_where_its_rest_was_blank() -> None:
    cut = sending(answer_bytes(200, b'{"datasets": []}', {"Content-Length": "20"}))
    with misbehaving([cut, JSON]) as server, client_of(server) as client:
        assert [dataset.name for dataset in client.datasets()] == ["demo"]
        assert len(server.heard) == 2
