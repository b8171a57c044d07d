"""Ctrl-C and SIGTERM: the first asks to finish what is in hand, the second stops at once."""

import signal
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """While entered, the first signal sets `requested`; the second raises `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.requested = False
        self.signal_name: str | None = None
        self._earlier: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._earlier[number] = signal.signal(number, self._on_signal)
        return self

    def arm(self) -> None:
        """Set the handlers again: Ray puts its own over SIGTERM's when it is started or joined."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.signal_name = signal.Signals(number).name
