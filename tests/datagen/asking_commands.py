"""Run `strata check` and `strata wire` in this process, and return what they tell."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from schemas.command import guarded

SGLANG = "sglang==0.5.23"
TARGET_SHAPE: dict[str, object] = {"num_hidden_layers": 61, "hidden_size": 8, "vocab_size": 1000}
Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, command: Callable[..., int], *words: object) -> tuple[int, dict[str, Any]]:
    """Run a command with `--json`, and return its exit code and the one JSON object on standard output."""
    code = guarded(command, [*map(str, words), "--json"])
    captured = capsys.readouterr()
    assert captured.err == ""
    content = json.loads(captured.out)
    assert isinstance(content, dict)
    assert captured.out.count("\n") == 1
    answers = [content, *content.get("consumers", ())]
    problems = [problem for answer in answers for problem in answer.get("problems", ())]
    assert all(problem["repair"] for problem in problems if problem["severity"] == "error")
    return code, content


def in_words(capsys: Capture, command: Callable[..., int], *words: object) -> tuple[int, str]:
    code = guarded(command, list(map(str, words)))
    captured = capsys.readouterr()
    return code, captured.out + captured.err
