"""Files that others made of the real SmolLM2, for `identify`: every slot is named, by its margin.

A real vLLM's connector writes what speculators trains on; there, what is asked for by id i is boundary i, and
its last id is the state before the final norm. transformers' own states go into a file each, one slot alone.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from datagen.engines.settings import EngineSettings
from datagen.replay.identify import dtype_of_files, identify
from datagen.replay.identify_answer import Identified
from datagen.replay.identify_sources import ModelSource
from deploy.demo.model import MODEL
from schemas.boundary import all_names
from schemas.schema import DType
from tests.datagen.replay.test_identify_smollm2 import states
from tests.oracle import vllm_cpu

TEXTS = (
    "The lighthouse keeper counted eleven ships before the fog came in, and wrote each name into his book.",
    "Speculative decoding lets a small draft propose several tokens that the target then checks in one pass.",
)
L = 30
DTYPES: tuple[DType, ...] = ("float32", "bfloat16")
MARGIN = 8
"""How many times as far the nearest other boundary is at least."""
ROUNDED = 0.03
"""An engine in bfloat16 is 1 to 2% off, and more where tokens are few."""
Sources = dict[DType, ModelSource]


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    if not MODEL.is_dir():
        pytest.fail(f"{MODEL.name} is not there: run make assets")
    made: Sources = {}
    for dtype in DTYPES:
        settings = EngineSettings.model_validate({"model": str(MODEL), "dtype": dtype, "device": "cpu"})
        made[dtype] = ModelSource.of(settings)
    yield made
    for source in made.values():
        source.engine.close()


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    return [list(tokenizer(text).input_ids) for text in TEXTS]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_slots_of_vllms_own_files(
    dtype: DType, sources: Sources, prompts: list[list[int]], tmp_path: Path
) -> None:
    """All of its ids at once; the target runs in float32 and in bfloat16."""
    vllm_cpu.extract(MODEL, list(range(L + 1)), prompts, tmp_path, dtype)
    files = [file for file in tmp_path.rglob("*.safetensors") if file.name != "answer.safetensors"]
    assert len(files) == len(prompts)
    assert dtype_of_files(files) == dtype
    for source in sources.values():
        found = identify(files, source)
        assert names_of(found) == list(all_names(L)[: L + 1]) * len(prompts)
        assert {slot.layout for slot in found.slots} == {"speculators"}
        assert_clear(found, median=1e-4 if dtype == source.dtype == "float32" else ROUNDED)


def _stacked(file: Path, ids: torch.Tensor, state: torch.Tensor) -> Path:
    file = file.with_suffix(".safetensors")
    save_file({"token_ids": ids, "hidden_states": state[:, None].contiguous()}, file)
    return file


def _listed(file: Path, ids: torch.Tensor, state: torch.Tensor) -> Path:
    file = file.with_name(file.name.replace("hs_", "data_")).with_suffix(".pt")
    torch.save({"input_ids": ids, "hidden_states": [state]}, file)
    return file


FORMS = {"stacked": _stacked, "listed": _listed}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_of_transformers_own_states_alone(
    dtype: DType, form: str, sources: Sources, prompts: list[list[int]], tmp_path: Path
) -> None:
    """`embed`, all 30 layers, the last one as it was written and as it was normed: a file each."""
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=getattr(torch, dtype)).eval()
    write: Callable[[Path, torch.Tensor, torch.Tensor], Path] = FORMS[form]
    for ids in prompts:
        made = states(model, torch.tensor([ids]))
        files = [
            write(tmp_path / f"hs_{number}", torch.tensor(ids), state) for number, state in enumerate(made)
        ]
        # The first is of the embedding table, whose values are bfloat16's in either.
        assert dtype_of_files(files[1:]) == dtype
        for source in sources.values():
            answers = [identify([file], source) for file in files]
            assert [name for found in answers for name in names_of(found)] == list(all_names(L))
            for found in answers:
                assert_clear(found, median=1e-4 if dtype == source.dtype else ROUNDED)


def names_of(found: Identified) -> list[str | None]:
    return [slot.found.name if slot.found else None for slot in found.slots]


def assert_clear(found: Identified, *, median: float) -> None:
    """Every row of every slot is its tensor's, within `median`, and far from the nearest other."""
    assert not found.errors
    for slot in found.slots:
        assert slot.found is not None
        assert slot.found.n_rows == slot.n_tokens
        assert slot.found.median <= median, slot.where
        assert slot.found.rival_median is not None
        assert slot.found.rival_median >= max(0.1, MARGIN * slot.found.median), slot.where
