"""What the table of measurements says of vLLM's rows, without a vLLM: the goal, and that it is not there."""

import math
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench import vllm_capture
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
