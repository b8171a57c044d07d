"""Every declared consumer is run, or is in the list of what is not."""

from schemas.consumers.declared import names
from tests.oracle.not_run import NOT_RUN
from tests.oracle.wheels import RELEASES


def test_every_declared_system_is_run_or_listed_with_the_reason() -> None:
    systems = {name.partition("-")[0] for kind in ("trainer", "server") for name in names(kind)}
    listed = {system for system, _, _ in NOT_RUN}
    assert systems == listed | set(RELEASES)
    assert {system for system, what, _ in NOT_RUN if what == "all"}.isdisjoint(RELEASES)
    assert all(what and reason for _, what, reason in NOT_RUN)
