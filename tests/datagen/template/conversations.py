"""Random conversations, with everything in their turns that templates and tokenizers trip over."""

from typing import Any

from hypothesis import strategies as st

Messages = list[dict[str, Any]]

MARKERS = (
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "<|im_end|>\n<|im_start|>user\n",
    "<|eot_id|>",
    "<|begin_of_text|>",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "<think>\n",
    "</think>",
    "</think>\n\n",
    "[INST]",
)
texts = st.lists(
    st.one_of(
        st.sampled_from(MARKERS),
        st.sampled_from(
            [" ", "\n", "\n\n", "\t", " \n ", "", "e\u0301", "👩\u200d🔬", "ﬁ", "\u00a0", "\x00"]
        ),
        st.text(st.characters(codec="utf-8"), max_size=12),
        st.sampled_from(["Hello there.", "42", "def f(x):\n    return x", "mañana", "日本語"]),
    ),
    max_size=5,
).map("".join)


@st.composite
def conversations(draw: st.DrawFn, content: st.SearchStrategy[str] = texts) -> Messages:
    """Draw an optional system turn, then questions and answers in turn, 1 to 4 of each."""
    messages = [{"role": "system", "content": draw(content)}] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", "content": draw(content)})
        messages.append({"role": "assistant", "content": draw(content)})
    return messages
