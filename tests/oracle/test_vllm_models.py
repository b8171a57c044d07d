"""Which models hand states out by vLLM's own files, read as a plan reads them."""

import pytest

from datagen.engines.vllm_models import hands_out
from tests.oracle.vllm_code import TARGETS, is_cached
from tests.oracle.wheels import RELEASES, source

NEWEST = RELEASES["vllm"][-1]
pytestmark = pytest.mark.skipif(not is_cached(NEWEST), reason=f"vllm {NEWEST} is not at hand: make oracle")
NONE = ("Gemma3ForCausalLM", "GPT2LMHeadModel", "OPTForCausalLM", "Glm4MoeForCausalLM", "Cohere2ForCausalLM")


@pytest.mark.parametrize("architecture", [*TARGETS, "GPTNeoXForCausalLM", "NemotronHForCausalLM"])
def test_hands_out(architecture: str) -> None:
    assert hands_out(source("vllm", NEWEST), architecture) is True


@pytest.mark.parametrize("architecture", NONE)
def test_hands_out_nothing(architecture: str) -> None:
    assert hands_out(source("vllm", NEWEST), architecture) is False
