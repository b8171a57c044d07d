"""What every engine that can let its target answer does: a suite that each one's test class inherits.

A subclass gives the fixture `engine`, and may change `STOPS`, the tokens that end an answer.
"""

from typing import Any

import numpy as np
import pytest

from datagen.engines.base import Answer, Answering
from datagen.engines.errors import BatchError
from datagen.engines.sampling import Sampling

LENGTHS = (5, 1, 17, 2, 17, 3)
SEEDS = (3, 1, 4, 1, 5, 9)


class AnsweringContract:
    STOPS: tuple[int, ...] = (0,)

    @pytest.fixture
    def prompts(self, engine: Any) -> list[list[int]]:
        rng = np.random.default_rng(7)
        return [rng.integers(1, engine.target.vocab_size, length).tolist() for length in LENGTHS]

    def sampling(self, **changes: Any) -> Sampling:
        settings = {"max_tokens": 12, "sample_tokens": 100, "stop_token_ids": self.STOPS}
        return Sampling(**{**settings, **changes})

    def test_is_an_engine_that_answers(self, engine: Any) -> None:
        assert isinstance(engine, Answering)

    def test_answers_in_order_and_each_says_how_it_ended(self, engine: Any, prompts: list[list[int]]) -> None:
        for temperature in (0.0, 1.5):
            answers = engine.answer(prompts, self.sampling(temperature=temperature), SEEDS)
            assert len(answers) == len(prompts)
            for answer in answers:
                self.assert_ended(answer, 12)
                assert all(0 <= token < engine.target.vocab_size for token in answer.token_ids)

    def assert_ended(self, answer: Answer, room: int) -> None:
        assert 1 <= len(answer.token_ids) <= room
        *before, last = answer.token_ids
        assert not set(before) & set(self.STOPS)
        assert answer.finish == ("stop" if last in self.STOPS else "length")
        assert answer.finish == "stop" or len(answer.token_ids) == room

    def test_a_prompt_and_its_answer_stay_within_a_sample(
        self, engine: Any, prompts: list[list[int]]
    ) -> None:
        sampling = self.sampling(sample_tokens=20, temperature=1.0)
        for prompt, answer in zip(prompts, engine.answer(prompts, sampling, SEEDS), strict=True):
            self.assert_ended(answer, min(12, 20 - len(prompt)))

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_an_answer_depends_on_its_prompt_and_its_seed_alone(
        self, engine: Any, prompts: list[list[int]], temperature: float
    ) -> None:
        sampling = self.sampling(temperature=temperature, top_p=0.9)
        together = engine.answer(prompts, sampling, SEEDS)
        backwards = engine.answer(prompts[::-1], sampling, SEEDS[::-1])[::-1]
        alone = [
            engine.answer([prompt], sampling, [seed])[0] for prompt, seed in zip(prompts, SEEDS, strict=True)
        ]
        assert list(together) == list(backwards) == alone

    def test_another_seed_gives_another_answer_but_not_at_temperature_0(
        self, engine: Any, prompts: list[list[int]]
    ) -> None:
        others = [seed + 100 for seed in SEEDS]
        hot = self.sampling(temperature=2.0)
        assert list(engine.answer(prompts, hot, SEEDS)) != list(engine.answer(prompts, hot, others))
        cold = self.sampling()
        assert list(engine.answer(prompts, cold, SEEDS)) == list(engine.answer(prompts, cold, others))

    def test_a_prompt_without_room_is_refused_with_its_number(
        self, engine: Any, prompts: list[list[int]]
    ) -> None:
        with pytest.raises(BatchError, match="sample 2: expected fewer than the 17 tokens"):
            engine.answer(prompts, self.sampling(sample_tokens=17), SEEDS)
        with pytest.raises(BatchError, match="sample 1: expected token ids"):
            engine.answer([[1], []], self.sampling(), SEEDS[:2])
