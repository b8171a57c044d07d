"""What a person sees of long work: a bar on a terminal, JSON lines elsewhere (a job's log).

Standard output belongs to results; progress goes to standard error.
"""

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from schemas.figures import human_bytes

LOG_EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Standing:
    """How far a run is: samples and tokens made in this run, bytes of their hidden tensors."""

    samples: int
    tokens: int
    payload_bytes: int
    quarantined: int
    workers_alive: int
    workers: int
    version: int | None
    answered: int | None = None
    """Samples whose target has answered; `None` in capture mode."""


class Reporter(Protocol):
    """Shows how far long work is."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, event: str, message: str, **facts: object) -> None:
        """Say one thing that happened."""
        ...

    def show(self, standing: Standing) -> None:
        """Show how far it is; may be called as often as one likes."""
        ...


def open_reporter(total_samples: int, total_tokens: int, stream: TextIO | None = None) -> Reporter:
    """Return the reporter that fits where standard error goes."""
    stream = stream or sys.stderr
    if stream.isatty():
        return BarReporter(total_samples, total_tokens, Console(file=stream))
    return LogReporter(total_samples, total_tokens, stream)


class Rate:
    """Tokens a second since the first look: what was made before it was made in a time that nobody took."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def after(self, tokens: int) -> float | None:
        """Return the rate up to now, `None` at the first look."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, tokens
        begun, before = self._first
        return (tokens - before) / (now - begun) if now > begun else None


class FactsBelow(Progress):
    """A bar with the figures on a line of their own: beside it, 80 columns hold neither."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(task.fields["facts"], style="dim")


class BarReporter:
    """A rich progress bar: samples, tokens a second, bytes, time left, quarantined, workers alive."""

    def __init__(self, total_samples: int, total_tokens: int, console: Console) -> None:
        self._console = console
        self._rate = Rate()
        self._progress = FactsBelow(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            expand=True,
        )
        # The bar moves by tokens, since samples differ in length.
        self._task = self._progress.add_task("capture", total=total_tokens, facts="starting")
        self._total_samples = total_samples

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, event: str, message: str, **_facts: object) -> None:
        self._progress.console.print(f"[dim]{event}[/dim] {message}", highlight=False)

    def show(self, standing: Standing) -> None:
        rate = self._rate.after(standing.tokens)
        facts = [
            f"{standing.samples:,}/{self._total_samples:,} samples",
            f"{rate or 0:,.0f} tokens/s",
            human_bytes(standing.payload_bytes),
            f"quarantined {standing.quarantined}",
            f"workers {standing.workers_alive}/{standing.workers}",
        ]
        if standing.answered is not None:
            facts.insert(0, f"{standing.answered:,} answered")
        self._progress.update(self._task, completed=standing.tokens, facts="  ".join(facts))


class LogReporter:
    """One JSON object a line: for logs, jobs and pipes."""

    def __init__(self, total_samples: int, total_tokens: int, stream: TextIO) -> None:
        self._stream = stream
        self._totals = {"total_samples": total_samples, "total_tokens": total_tokens}
        self._rate = Rate()
        self._last = time.monotonic()
        self._shown: Standing | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def say(self, event: str, message: str, **facts: object) -> None:
        self._write(event=event, message=message, **facts)

    def show(self, standing: Standing) -> None:
        now = time.monotonic()
        rate = self._rate.after(standing.tokens)
        finished = standing.samples >= self._totals["total_samples"]
        if standing == self._shown or (now - self._last < LOG_EVERY_SECONDS and not finished):
            return
        tokens_left = max(0, self._totals["total_tokens"] - standing.tokens)
        left = tokens_left / rate if rate else (None if tokens_left else 0.0)
        self._write(
            event="progress",
            **asdict(standing),
            **self._totals,
            tokens_per_second=None if rate is None else round(rate, 1),
            seconds_left=None if left is None else round(left, 1),
        )
        self._last, self._shown = now, standing

    def _write(self, **facts: object) -> None:
        _log(self._stream, **facts)


class Passes:
    """Long work in stages, counted in passes: a bar on a terminal, now and then a JSON line elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: Progress | None = None
        if stream.isatty():
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=Console(file=stream),
                expand=True,
            )
        self._stage, self._total, self._done = "", 0, 0
        self._told = time.monotonic()
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, words: str, total: int) -> None:
        """Begin a stage of so many passes."""
        self._stage, self._total, self._done = words, total, 0
        if self._bar is not None:
            self._task = self._bar.add_task(words, total=total)
        else:
            self._tell()

    def passed(self) -> None:
        """Count one pass."""
        self._done += 1
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task)
        elif time.monotonic() - self._told >= LOG_EVERY_SECONDS:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        _log(self._stream, event="progress", stage=self._stage, done=self._done, total=self._total)


class Transfer:
    """Long copying, counted in bytes: a bar on a terminal, now and then a JSON line elsewhere."""

    def __init__(self, words: str, stream: TextIO) -> None:
        self._words, self._stream = words, stream
        self._began = self._told = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if stream.isatty():
            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            console = Console(file=stream)
            self._bar = Progress(TextColumn(words), *columns, console=console, transient=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._task = self._bar.add_task(self._words, total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """Say how many bytes of how many are there."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif time.monotonic() - self._told >= LOG_EVERY_SECONDS:
            self._tell(done, total)

    def _tell(self, done: int, total: int) -> None:
        self._told = time.monotonic()
        rate = done / (self._told - self._began)
        _log(
            self._stream,
            event="progress",
            stage=self._words,
            done_bytes=done,
            total_bytes=total,
            bytes_per_second=round(rate),
            seconds_left=round((total - done) / rate, 1) if rate else None,
        )


def _log(stream: TextIO, **facts: object) -> None:
    """Write a line of a log: one JSON object, its time first."""
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
    print(json.dumps(line, default=str), file=stream, flush=True)
