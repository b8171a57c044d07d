"""The id of a run: when it started, and enough chance that two never meet."""

import uuid
from datetime import UTC, datetime


def new_run_id() -> str:
    """Return a new one, as `20260131T235959Z-0123abcd`."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
