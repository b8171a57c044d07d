"""Which engine gives which boundary of which architecture, and which tests say so: the table of the README.

`python -m tests.support` prints it. `tests/test_support.py` holds it against the tests that are named, and
the README against it.
"""

import sys
from typing import NamedTuple

TESTED = "tested"
NOT_RUN = "not run"
UNTESTED = "untested"
REFUSED = "refused"
BOUNDARIES = ("embed", "layer{b}", "final", "final_normed")

ORACLE = "tests/datagen/engines/test_hf_oracle.py"
IMAGES = "tests/datagen/engines/test_hf_image_text.py"
SMOLLM2 = "tests/datagen/engines/test_smollm2.py"
PROOF = "tests/datagen/engines/test_proof.py"
VLLM = "tests/with_vllm/test_against_transformers.py"
SERVED = "tests/with_vllm/test_server_files.py"
SGLANG = "tests/oracle/test_sglang_capture.py"


class Row(NamedTuple):
    """One engine on some architectures, by the names of their test models; none of those is all others.

    `cells` are about BOUNDARIES, in order; `by` is the test file that runs them, `test` the test in it.
    """

    engine: str
    architectures: tuple[str, ...]
    cells: tuple[str, str, str, str]
    by: str = ""
    test: str = ""


ALL = (TESTED,) * 4
NONE = (UNTESTED,) * 4
ROWS = (
    Row("hf", ("smollm2",), ALL, SMOLLM2, "test_equals_transformers_bit_for_bit_in_the_same_batch"),
    Row(
        "hf",
        (
            "llama",
            "qwen3",
            "mistral",
            "gemma3",
            "gpt2",
            "gpt_neox",
            "opt",
            "deepseek_v3",
            "qwen3_moe",
        ),
        ALL,
        ORACLE,
        "test_equal_bit_for_bit_in_the_same_batch",
    ),
    Row("hf", ("kimi_k25", "llava"), ALL, IMAGES, "test_the_language_model_is_captured"),
    Row("hf", (), ("proven or refused",) * 4, PROOF),
    Row(
        "vllm",
        ("smollm2", "llama", "qwen3_moe"),
        ALL,
        VLLM,
        "test_every_boundary_is_transformers_own_in_float32",
    ),
    Row(
        "vllm",
        ("deepseek_v3",),
        ("tested, from the embedding layer", TESTED, TESTED, TESTED),
        VLLM,
        "test_every_boundary_is_transformers_own_in_float32",
    ),
    Row("vllm", (), NONE),
    Row("openai", ("llama",), ALL, SERVED, "test_every_boundary_is_that_of_transformers"),
    Row("openai", (), NONE),
    Row(
        "sglang",
        ("llama",),
        ("not run, from the model's files", NOT_RUN, REFUSED, REFUSED),
        SGLANG,
        "test_what_comes_back_is_told_apart_by_tensor",
    ),
    Row("sglang", (), (UNTESTED, UNTESTED, REFUSED, REFUSED)),
)


def table() -> str:
    """Return the table in Markdown."""
    lines = [
        f"| engine | architecture | {' | '.join(f'`{name}`' for name in BOUNDARIES)} |",
        "|" + " --- |" * (2 + len(BOUNDARIES)),
    ]
    for row in ROWS:
        names = ", ".join(row.architectures) or "any other"
        lines.append(f"| `{row.engine}` | {names} | {' | '.join(row.cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
