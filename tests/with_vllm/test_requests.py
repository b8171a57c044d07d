"""Requests and their states: alone or beside others, again, in any order, behind a common prefix; answers."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from datagen.engines.base import Capture, Engine
from datagen.engines.opening import open_engine
from datagen.engines.sampling import Sampling
from datagen.engines.settings import EngineSettings
from deploy.demo.model import MODEL
from tests.contract.engine_contract import token_errors
from tests.with_vllm.opened import start

SAME = 1e-4


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = start(MODEL, "float32", ("embed", "layer15", "final"))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def batch() -> list[list[int]]:
    rng = np.random.default_rng(11)
    return [rng.integers(0, 49152, int(length)).tolist() for length in rng.integers(1, 60, 32)]


def assert_same(left: Sequence[Capture], right: Sequence[Capture]) -> None:
    for one, other in zip(left, right, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        for name in one.tensors:
            errors = token_errors(one.tensors[name], other.tensors[name])
            assert errors.max() <= SAME, (name, len(one.token_ids), int(errors.argmax()))


def test_a_batch_of_32_as_alone_again_and_shuffled(engine: Engine, batch: list[list[int]]) -> None:
    together = engine.submit(batch).result()
    assert_same(together, [engine.submit([ids]).result()[0] for ids in batch])
    assert_same(together, engine.submit(batch).result())
    order = np.random.default_rng(5).permutation(len(batch))
    shuffled = engine.submit([batch[index] for index in order]).result()
    assert_same([together[index] for index in order], shuffled)


def test_a_prompt_that_was_there_before_is_not_shortened(engine: Engine, batch: list[list[int]]) -> None:
    ids = max(batch, key=len)
    first, beside, other = engine.submit([ids, ids, [*ids[:-1], 7]]).result()
    (again,) = engine.submit([ids]).result()
    assert_same([first, first], [beside, again])
    for name in first.tensors:
        assert len(other.tensors[name]) == len(ids)
        errors = token_errors(other.tensors[name][:-1], first.tensors[name][:-1])
        assert errors.max() <= SAME, name
        assert other.tensors[name][-1].tobytes() != first.tensors[name][-1].tobytes()


def test_a_prefix_of_96_tokens_in_common(engine: Engine, batch: list[list[int]]) -> None:
    prefix = (batch[0] * 96)[:96]
    asked = [[*prefix, *ids[:20]] for ids in batch[:6]]
    together = engine.submit(asked).result()
    assert [len(capture.tensors["final"]) for capture in together] == [len(ids) for ids in asked]
    assert_same(together, [engine.submit([ids]).result()[0] for ids in asked])


def test_greedy_answers_are_those_of_the_engine_hf(engine: Engine, batch: list[list[int]]) -> None:
    """And the states of the whole are those of a fresh prefill by the engine hf."""
    asked = [ids[:20] for ids in batch[:6]]
    sampling = Sampling(max_tokens=24, sample_tokens=200, stop_token_ids=(2,))
    other = open_engine(EngineSettings(model=str(MODEL), dtype="float32", device="cpu"), engine.schema)
    answers = engine.answer(asked, sampling, range(6))  # type: ignore[attr-defined]
    assert answers == other.answer(asked, sampling, range(6))  # type: ignore[attr-defined]
    whole = [[*ids, *answer.token_ids] for ids, answer in zip(asked, answers, strict=True)]
    assert_same(engine.submit(whole).result(), other.submit(whole).result())
    other.close()


def test_a_stop_text_ends_an_answer_where_the_engine_hf_ends_it(
    engine: Engine, batch: list[list[int]]
) -> None:
    sampling = Sampling(max_tokens=24, sample_tokens=200, stop=("e", "\n"))
    asked = [ids[:12] for ids in batch[:4]]
    other = open_engine(EngineSettings(model=str(MODEL), dtype="float32", device="cpu"), engine.schema)
    answers = engine.answer(asked, sampling, range(4))  # type: ignore[attr-defined]
    assert answers == other.answer(asked, sampling, range(4))  # type: ignore[attr-defined]
    assert any(answer.finish == "stop" for answer in answers)
    other.close()


def test_drawn_answers_repeat_by_their_seeds_in_any_batch(engine: Engine, batch: list[list[int]]) -> None:
    asked = [ids[:16] for ids in batch[:6]]
    sampling = Sampling(max_tokens=16, sample_tokens=200, temperature=0.8, top_p=0.9)
    first = engine.answer(asked, sampling, range(6))  # type: ignore[attr-defined]
    assert engine.answer(asked, sampling, range(6)) == first  # type: ignore[attr-defined]
    turned = engine.answer(asked[::-1], sampling, range(6)[::-1])  # type: ignore[attr-defined]
    assert turned[::-1] == first
    (alone,) = engine.answer(asked[2:3], sampling, [2])  # type: ignore[attr-defined]
    assert alone == first[2]
    assert engine.answer(asked, sampling, range(6, 12)) != first  # type: ignore[attr-defined]
