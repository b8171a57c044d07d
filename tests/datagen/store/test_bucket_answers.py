"""What a bucket's refusals and silences are called."""

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError

from datagen.store.bucket_answers import KEYS_REPAIR, REACH_REPAIR, RIGHTS_REPAIR, answer, is_of_the_place

_ASKED = "Generic S3 error: Error performing GET http://host:9/b/x in 2.7s, after 10 retries, max_retries: 10"
_METADATA = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 3ms"
_XML = "<?xml version='1.0'?> <Error><Code>AccessDenied</Code><Message>Access Denied</Message><RequestId>a"


@pytest.mark.parametrize(
    ("error", "said", "repair", "of_the_place"),
    [
        pytest.param(
            PermissionDeniedError(f"{_ASKED} - Server returned non-2xx status code: 403 Forbidden: {_XML}"),
            "403 Forbidden: AccessDenied, Access Denied",
            RIGHTS_REPAIR,
            True,
            id="refused",
        ),
        pytest.param(
            UnauthenticatedError(f"{_ASKED} - Server returned non-2xx status code: 401 Unauthorized: "),
            "401 Unauthorized",
            RIGHTS_REPAIR,
            True,
            id="refused-without-words",
        ),
        pytest.param(
            GenericError(f"{_ASKED} - Server returned non-2xx status code: 503 Slow Down: wait\n a bit"),
            "503 Slow Down: wait a bit",
            REACH_REPAIR,
            True,
            id="busy",
        ),
        pytest.param(
            GenericError(
                f"{_ASKED} - HTTP error\n\nDebug source:\nkind: ConnectionRefused,\n"
                'message: "Connection refused",'
            ),
            "Connection refused (GET http://host:9/b/x, after 10 retries)",
            REACH_REPAIR,
            False,
            id="nobody-listens",
        ),
        pytest.param(
            GenericError(f"{_ASKED} - HTTP error\n\nDebug source:\nkind: Timeout,\nsource: TimedOut,"),
            "no answer in time (GET http://host:9/b/x, after 10 retries)",
            REACH_REPAIR,
            False,
            id="silent",
        ),
        pytest.param(
            GenericError(f"{_METADATA} - Server returned non-2xx status code: 403 Forbidden: no"),
            "no credentials, and none from this machine (403 Forbidden: no)",
            KEYS_REPAIR,
            False,
            id="no-credentials",
        ),
        pytest.param(OSError("something else"), "something else", REACH_REPAIR, True, id="of-the-machine"),
    ],
)
def test_an_answer_is_short_and_says_what_to_do(
    error: Exception, said: str, repair: str, of_the_place: bool
) -> None:
    assert answer(error) == (said, repair)
    assert is_of_the_place(error) is of_the_place
