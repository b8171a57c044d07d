"""What long work shows, on a terminal and in a log."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from datagen.progress import (
    BarReporter,
    LogReporter,
    Passes,
    Rate,
    Standing,
    Transfer,
    open_reporter,
)


def standing(samples: int, tokens: int) -> Standing:
    return Standing(samples, tokens, tokens * 5760, 1, 2, 2, None)


def test_elsewhere_than_on_a_terminal_it_logs_one_json_object_a_line() -> None:
    stream = io.StringIO()
    with open_reporter(10, 1000, stream) as reporter:
        reporter.say("commit", "version 1", version=1)
        reporter.show(standing(10, 1000))
        reporter.show(standing(10, 1000))
    said, shown = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (said["event"], said["message"], said["version"]) == ("commit", "version 1", 1)
    assert shown["event"] == "progress"
    assert shown["samples"] == 10
    assert shown["total_samples"] == 10
    assert shown["seconds_left"] == 0
    assert shown["tokens_per_second"] is None  # one look is no rate


def test_a_rate_is_of_what_was_made_since_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 102.0])
    monkeypatch.setattr("datagen.progress.time", SimpleNamespace(monotonic=lambda: next(now)))
    rate = Rate()
    assert rate.after(5000) is None
    assert rate.after(5400) == 200


def test_log_lines_are_few() -> None:
    stream = io.StringIO()
    with LogReporter(100, 10_000, stream) as reporter:
        for done in range(50):
            reporter.show(standing(done, done * 100))
    assert stream.getvalue() == ""


@pytest.mark.parametrize("width", [80, 160])
def test_a_terminal_gets_a_bar_with_everything_on_it(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None)
    with BarReporter(10, 1000, console) as reporter:
        reporter.show(standing(4, 500))
        reporter.say("lost", "unit 3: a worker died")
        reporter.show(standing(4, 500))
    shown = stream.getvalue()
    for piece in (
        "50%",
        "4/10 samples",
        "tokens/s",
        "2.88 MB",
        "quarantined 1",
        "workers 2/2",
        "unit 3: a worker died",
    ):
        assert piece in shown


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_passes_are_a_bar_a_stage_on_a_terminal() -> None:
    stream = Terminal()
    with Passes(stream) as passes:
        for words in ("screening", "refining"):
            passes.stage(words, 2)
            passes.passed()
            passes.passed()
    shown = stream.getvalue()
    assert "screening" in shown
    assert "refining" in shown
    assert "100%" in shown


def test_passes_elsewhere_are_a_json_line_a_stage_and_now_and_then_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([0.0, 0.0, 3.0, 11.0, 11.0])
    monkeypatch.setattr("datagen.progress.time", SimpleNamespace(monotonic=lambda: next(now)))
    stream = io.StringIO()
    with Passes(stream) as passes:
        passes.stage("screening", 5)
        passes.passed()
        passes.passed()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["stage"], line["done"], line["total"]) for line in told] == [
        ("screening", 0, 5),
        ("screening", 2, 5),
    ]


def test_copying_on_a_terminal_is_a_bar_in_bytes_with_its_speed() -> None:
    stream = Terminal()
    with Transfer("export", stream) as transfer:
        transfer.show(2_000_000, 4_000_000)
        transfer.show(4_000_000, 4_000_000)
    assert "export" in stream.getvalue()
    assert "4.0/4.0 MB" in stream.getvalue()


def test_copying_elsewhere_is_a_json_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 9.0, 20.0, 20.0, 21.0])
    monkeypatch.setattr("datagen.progress.time", SimpleNamespace(monotonic=lambda: next(now)))
    stream = io.StringIO()
    with Transfer("export", stream) as transfer:
        for done in (10, 40, 50):
            transfer.show(done, 100)
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert line.pop("time")
    assert line == {
        "event": "progress",
        "stage": "export",
        "done_bytes": 40,
        "total_bytes": 100,
        "bytes_per_second": 2,
        "seconds_left": 30.0,
    }
