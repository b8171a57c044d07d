"""The worker itself, without Ray: what it makes of a unit when it is told to stop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from datagen.driver.driver import open_job, work_order
from datagen.engines.base import Answer, Engine
from datagen.engines.errors import EngineError
from datagen.engines.opening import open_engine
from datagen.engines.settings import EngineSettings
from datagen.planning.units import Unit
from datagen.worker.actor import Worker
from schemas.schema import Schema
from tests.datagen.driver.test_generate_runs import LENGTHS, generating, write_asks


@pytest.mark.parametrize("calls", [1, 3])
def test_told_to_stop_it_keeps_every_answer_that_is_there(tmp_path: Path, calls: int) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    job = open_job(generating(tmp_path, generate__batch=2))
    worker = Worker(work_order(job))
    engine: Any = worker._engine
    right = engine.answer
    asked: list[list[list[int]]] = []

    def answer(prompts: Sequence[Sequence[int]], *settings: Any) -> Sequence[Answer]:
        asked.append([list(ids) for ids in prompts])
        if len(asked) == calls:
            worker._stop.set()  # as `wind_up` does, which is Ray's to call
        answers: Sequence[Answer] = right(prompts, *settings)
        return answers

    engine.answer = answer
    result = worker.make(Unit("0", job.todo))
    assert result.part is not None
    made = {row["prompt_id"].hex() for row in result.part.samples.to_pylist()}
    first = [ids for batch in asked for ids in batch]
    begun = {prompt.prompt_id for prompt in job.todo if prompt.input_ids.tolist() in first}
    assert made == begun
    assert 0 < len(begun) < len(job.todo)
    assert {prompt.prompt_id for prompt in result.unfinished} == {one.prompt_id for one in job.todo} - begun
    waiting = worker.make(Unit("1", job.todo))
    assert (waiting.part, len(waiting.unfinished)) == (None, len(job.todo))


def test_closed_it_closes_its_engine_and_opens_none_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_asks(tmp_path / "prompts.jsonl", LENGTHS)
    opened: list[Engine] = []

    def opening(settings: EngineSettings, schema: Schema) -> Engine:
        opened.append(open_engine(settings, schema))
        return opened[-1]

    monkeypatch.setattr("datagen.worker.actor.open_engine", opening)
    worker = Worker(work_order(open_job(generating(tmp_path))))
    worker.close()
    assert opened == []
    worker.describe()
    worker.close()
    worker.close()
    (engine,) = opened
    with pytest.raises(EngineError, match="closed"):
        engine.submit([[1, 2]])
