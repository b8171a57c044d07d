"""Arguments that are refused are arguments of vLLM and SGLang, by the names in their own code."""

import ast
import re
from pathlib import Path

import pytest

from datagen.engines.owned_arguments import SGLANG_OWNED, VLLM_OWNED
from datagen.engines.sglang_inside import PINNED
from tests.oracle import sglang_code, vllm_code
from tests.oracle.wheels import RELEASES, source

NEWEST = RELEASES["vllm"][-1]
LIKE = re.compile(
    r"quant|_dtype$|revision|override|load_format|^model|prefix_cach|context_parallel|^cp_|lora_path"
)
"""What sounds as if it could change states."""
HARMLESS = {
    "allow_deprecated_quantization",
    "cp_kv_cache_interleave_size",
    "lora_dtype",
    "mm_encoder_attn_dtype",
    "num_gpu_blocks_override",
    "prefix_cache_retention_interval",
    "prefix_caching_hash_algo",
}
"""Without effect on text, or only beside an argument that is refused."""


def vllm_arguments() -> set[str]:
    tree = ast.parse((source("vllm", NEWEST) / "engine" / "arg_utils.py").read_text("utf-8"))
    (owner,) = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "EngineArgs"]
    return {
        one.target.id
        for one in owner.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }


def sglang_arguments() -> set[str]:
    folder: Path = source("sglang", PINNED) / "srt" / "arg_groups" / "fields"
    text = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    return set(re.findall(r"^    ([a-z_0-9]+): A\[", text, re.MULTILINE))


@pytest.mark.skipif(not vllm_code.is_cached(NEWEST), reason=f"vllm {NEWEST} is not at hand: make oracle")
def test_vllm_has_the_arguments_that_are_refused() -> None:
    known = vllm_arguments()
    assert set(VLLM_OWNED) - known == set()
    assert {name for name in known if LIKE.search(name)} - set(VLLM_OWNED) - HARMLESS == set()


@pytest.mark.skipif(not sglang_code.is_cached(PINNED), reason=f"sglang {PINNED} is not at hand: make oracle")
def test_sglang_has_the_arguments_that_are_refused() -> None:
    assert set(SGLANG_OWNED) - sglang_arguments() == set()
