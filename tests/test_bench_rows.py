"""The table of measurements, a line a row; vLLM's rows without a vLLM: the goal, and that it is not there."""

import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.bench import __main__ as bench
from tests.bench import vllm_capture
from tests.bench.row import Row
from tests.with_vllm.measure import Way

RATES: dict[Way, list[float]] = {
    "engine vllm": [960.0, 480.0, 970.0],
    "vLLM to files": [1000.0, 500.0, 2000.0],
    "vLLM prefill": [1200.0, 600.0, 1200.0],
    "engine hf": [480.0, 240.0, 485.0],
}
"""In the second round the machine was half as fast; in the third one run was lucky."""


def test_capture_is_held_to_nearly_all_of_its_own_extraction_to_files() -> None:
    first, over_prefill, files, hf = vllm_capture.rows_of(RATES, 2)
    assert (first.value, first.ratio, first.goal, first.holds) == (960.0, 0.96, 0.95, True)
    slower, *_ = vllm_capture.rows_of({**RATES, "engine vllm": [940.0, 470.0, 940.0]}, 2)
    assert slower.holds is False
    assert [row.ratio for row in (over_prefill, files, hf)] == pytest.approx([0.8, 1000 / 1200, 0.5])
    assert [row.goal for row in (over_prefill, files, hf)] == [None, None, None]


def test_without_a_vllm_the_row_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_capture, "READY", tmp_path / "ready")
    (row,) = vllm_capture.run()
    assert math.isnan(row.value)
    assert row.holds is None
    assert row.name == (
        "not measured: there is no vLLM here; python -m tests.with_vllm.environment makes it (3 GB)"
    )
    assert bench.value_of(row) == ""
    assert bench.as_data("vllm_capture", row)["value"] is None


NAME = "four connections, two processes, of a service on the same machine"
ROWS = [
    Row("plain", 3.0, "GB/s"),
    Row(NAME, 123456.0, "answer tokens/s", 0.91, "four bare sockets, sendfile", 0.95),
    Row("first byte", 4.2, "ms", None, None, 5.0, at_most=True),
    Row("not measured: there is none here", math.nan, "GB/s"),
]


def printed(**console: Any) -> list[str]:
    stream = io.StringIO()
    bench.show(Console(file=stream, color_system=None, **console), "serve", ROWS)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def test_a_log_has_each_row_in_a_line_of_its_own_with_all_that_it_says() -> None:
    title, plain, row, first, not_measured = printed(width=80)
    assert title.split() == ["serve", "value", "unit", "ratio", "over", "goal"]
    assert plain.split() == ["plain", "3", "GB/s"]
    assert re.split(r" {2,}", row) == [
        NAME,
        "123,456",
        "answer tokens/s",
        "0.91",
        "four bare sockets, sendfile",
        ">= 0.95",
        "BELOW",
    ]
    assert first.endswith("<= 5  holds")
    assert not_measured == "serve: not measured: there is none here"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_terminal_has_a_line_a_row_and_cuts_no_figure(width: int) -> None:
    lines = printed(width=width, force_terminal=True)
    assert len(lines) == 1 + len(ROWS)
    assert max(map(len, lines)) <= width
    assert re.search(r"123,456  answer tokens/s +0\.91 .*>= 0\.95  BELOW$", lines[2])
    assert lines[2].startswith(NAME if width >= 120 else NAME[:10])
    assert ("four bare sockets" in lines[2]) is (width >= 160)
