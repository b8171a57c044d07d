"""A double of Ray: calls that answer when a test says so, and processes that die when it says so."""

from collections.abc import Sequence
from typing import Any

from ray.exceptions import ActorUnavailableError, RayTaskError


class Call:
    """What was asked of an actor."""

    def __init__(self, method: str, arguments: tuple[Any, ...]) -> None:
        self.method = method
        self.arguments = arguments
        self.answered = False
        self.answer: Any = None
        self.error: BaseException | None = None

    def returns(self, answer: Any = None) -> None:
        self.answered, self.answer = True, answer

    def raises(self, cause: Exception) -> None:
        """Fail as a method does that raised `cause` in a worker that lives on."""
        self.answered, self.error = True, RayTaskError(self.method, "traceback", cause, pid=1)  # type: ignore[no-untyped-call]

    def dies(self) -> None:
        """Fail as a call does whose worker's process died."""
        self.answered, self.error = True, ActorUnavailableError("Socket closed", None)


class _Method:
    def __init__(self, actor: "Actor", name: str) -> None:
        self._actor = actor
        self._name = name

    def remote(self, *arguments: Any) -> Call:
        self._actor.calls.append(Call(self._name, arguments))
        return self._actor.calls[-1]


class Actor:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> _Method:
        return _Method(self, name)

    def last(self, method: str) -> Call:
        """Return the call that waits for an answer; it is of `method`."""
        call = self.calls[-1]
        assert (call.method, call.answered) == (method, False)
        return call


class RayDouble:
    """Takes the place of the module `ray` where calls are waited for."""

    def __init__(self) -> None:
        self.killed: list[tuple[Actor, bool]] = []

    def wait(self, calls: Sequence[Call], timeout: float = 0.0) -> tuple[list[Call], list[Call]]:
        ready = [call for call in calls if call.answered]
        return ready, [call for call in calls if not call.answered]

    def get(self, call: Call) -> Any:
        if call.error is not None:
            raise call.error
        return call.answer

    def kill(self, actor: Actor, no_restart: bool = True) -> None:
        self.killed.append((actor, no_restart))
