"""Answers on tiny models of many families and of the synthetic engine, and how a token is chosen."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from datagen.engines.decoding import StopTexts, choose
from datagen.engines.opening import ending_token_ids, open_engine, read_target
from datagen.engines.sampling import Sampling
from datagen.engines.settings import EngineSettings, SyntheticSettings
from schemas.schema import Schema
from tests.contract.answering_contract import AnsweringContract
from tests.datagen.engines import tiny_models
from tests.datagen.engines.conftest import TinyFolder

FAMILIES = ("llama", "gemma3", "gpt2", "opt", "gpt_neox", "deepseek_v3", "qwen3_moe", "kimi_k25")


def opened(settings: EngineSettings) -> Any:
    return open_engine(settings, Schema.declare(read_target(settings), ("final",), settings.dtype))


class TestSynthetic(AnsweringContract):
    @pytest.fixture
    def engine(self) -> Any:
        shape = SyntheticSettings(n_layers=4, hidden_size=24, vocab_size=300)
        return opened(EngineSettings(name="synthetic", synthetic=shape))


@pytest.mark.parametrize("family", FAMILIES)
class TestHf(AnsweringContract):
    STOPS = tuple(range(0, tiny_models.VOCAB, 7))

    @pytest.fixture
    def engine(self, family: str, tiny_folder: TinyFolder) -> Iterator[Any]:
        engine = opened(EngineSettings(model=str(tiny_folder(family)), dtype="float32", device="cpu"))
        yield engine
        engine.close()

    def test_at_temperature_0_it_says_what_transformers_says(
        self, engine: Any, prompts: list[list[int]], family: str
    ) -> None:
        model = tiny_models.build(family)
        answers = engine.answer(prompts, self.sampling(stop_token_ids=()), [0] * len(prompts))
        for prompt, answer in zip(prompts, answers, strict=True):
            out = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                max_new_tokens=12,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
            assert list(answer.token_ids) == out[0, len(prompt) :].tolist()


def test_what_a_models_makers_recommend_is_left_aside(tiny_folder: TinyFolder) -> None:
    """A penalty in `generation_config.json` would change greedy answers; only its endings are taken."""
    engine = opened(EngineSettings(model=str(tiny_folder("llama")), dtype="float32", device="cpu"))
    generation_config = engine._loaded.model.generation_config
    assert generation_config.eos_token_id is None
    assert generation_config.temperature is None


@pytest.mark.parametrize(("said", "expected"), [("5", (5,)), ("[9, 3, 9]", (3, 9)), ("null", ())])
def test_the_models_files_say_what_ends_an_answer(
    said: str, expected: tuple[int, ...], tiny_folder: TinyFolder, tmp_path: Any
) -> None:
    for file in tiny_folder("qwen3").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": {said}}}')
    (tmp_path / "config.json").write_text(
        (tmp_path / "config.json").read_text().replace("{", '{"eos_token_id": null,', 1)
    )
    assert ending_token_ids(EngineSettings(model=str(tmp_path))) == expected


def test_a_stop_text_ends_an_answer_behind_the_token_that_completes_it(tiny_folder: TinyFolder) -> None:
    engine = opened(EngineSettings(model=str(tiny_folder("llama")), dtype="float32", device="cpu"))
    prompts = [[5, 6, 7], [9, 1]]
    sampling = Sampling(max_tokens=9, sample_tokens=50, temperature=5.0)
    free = engine.answer(prompts, sampling, [0, 0])
    text = f"w{free[0].token_ids[3]} w{free[0].token_ids[4]}"
    first, second = engine.answer(prompts, sampling.model_copy(update={"stop": (text,)}), [0, 0])
    assert (first.token_ids, first.finish) == (free[0].token_ids[:5], "stop")
    assert second == free[1]


def test_a_stop_text_is_not_looked_for_in_the_prompt() -> None:
    stops = StopTexts(("ab",), lambda ids: "".join(map(chr, ids)), 2)
    rows = torch.tensor([[97, 98, 99], [98, 97, 98], [1, 97, 98]])
    assert stops(rows, None).tolist() == [False, False, False]
    assert StopTexts(("ab",), lambda ids: "".join(map(chr, ids)), 1)(rows, None).tolist() == [
        False,
        True,
        True,
    ]


def reference(scores: Sequence[float], uniform: float, temperature: float) -> set[int]:
    """Return the tokens that may be taken, by the definition; two where rounding may part them."""
    logits = np.asarray(scores, np.float64) / temperature
    weights = np.exp(logits - logits.max())
    edges = np.cumsum(weights) / weights.sum()
    near = [min(max(uniform + shift, 0.0), 1.0) for shift in (-1e-4, 0.0, 1e-4)]
    return {min(int(np.searchsorted(edges, level, side="right")), len(edges) - 1) for level in near}


@settings(max_examples=200, deadline=None)
@given(
    arrays(np.float32, st.integers(1, 40), elements=st.integers(-8, 8).map(float)),
    st.floats(0.0, 1.0, exclude_max=True),
    st.floats(0.2, 3.0),
)
def test_a_token_is_chosen_by_its_share_of_the_probability(
    scores: np.ndarray[Any, Any], uniform: float, temperature: float
) -> None:
    number = torch.tensor([uniform], dtype=torch.float64)
    chosen = int(choose(torch.from_numpy(scores)[None], number, temperature, 1.0))
    assert chosen in reference(scores.tolist(), uniform, temperature)


def test_top_p_leaves_the_unlikely_out_and_shares_the_rest() -> None:
    scores = torch.log(torch.tensor([[0.05, 0.5, 0.15, 0.3]]))
    numbers = torch.linspace(0, 1, 1001, dtype=torch.float64)[:-1]

    def shares(top_p: float) -> list[float]:
        chosen = choose(scores.expand(1000, -1), numbers, 1.0, top_p)
        return [round(share, 2) for share in (torch.bincount(chosen, minlength=4) / 1000).tolist()]

    assert shares(1.0) == [0.05, 0.5, 0.15, 0.3]
    assert shares(0.79) == [0.0, 0.62, 0.0, 0.38]
    assert shares(0.5) == [0.0, 1.0, 0.0, 0.0]
    assert shares(0.01) == [0.0, 1.0, 0.0, 0.0]


def test_top_p_of_a_flat_choice_among_very_many_looks_at_all() -> None:
    """The likeliest 1024 of 5000 equal tokens have a fifth of the probability."""
    numbers = torch.tensor([0.0, 0.999], dtype=torch.float64)
    assert choose(torch.zeros(2, 5000), numbers, 1.0, 0.9).tolist() == [0, 4995]


def test_seeded_shares_are_those_of_the_probabilities(tiny_folder: TinyFolder) -> None:
    """300 seeds on one prompt: the first tokens' frequencies against the model's own probabilities."""
    engine = opened(EngineSettings(model=str(tiny_folder("llama")), dtype="float32", device="cpu"))
    prompt = [5, 6, 7]
    sampling = Sampling(max_tokens=1, sample_tokens=50, temperature=0.7)
    answers = engine.answer([prompt] * 300, sampling, range(300))
    counts = np.bincount([answer.token_ids[0] for answer in answers], minlength=tiny_models.VOCAB)
    with torch.inference_mode():
        logits = tiny_models.build("llama")(torch.tensor([prompt])).logits[0, -1] / 0.7
    expected = 300 * torch.softmax(logits, -1).numpy()
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected.max())
    assert np.corrcoef(counts, expected)[0, 1] > 0.5
