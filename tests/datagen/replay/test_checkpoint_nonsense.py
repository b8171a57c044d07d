"""Nonsense in a draft's config: told by name, or harmless; never a traceback."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datagen.replay.checkpoint import read_draft
from datagen.replay.draft import Draft
from datagen.replay.errors import ReplayError
from tests.datagen.replay.tiny_drafts import (
    DRAFT_VOCAB,
    SLOTS,
    WIDTH,
    plain_config,
    random_embedding,
    random_weights,
    speculators_config,
    write_draft,
)

_NONSENSE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)
_KEYS = [
    *plain_config(),
    "rope_scaling",
    "rope_theta",
    "layer_types",
    "sliding_window",
    "fc_norm",
    "partial_rotary_factor",
]


@settings(max_examples=60, deadline=None)
@example(changes={"num_attention_heads": 0}, nested=True)
@given(changes=st.dictionaries(st.sampled_from(_KEYS), _NONSENSE, max_size=3), nested=st.booleans())
def test_nonsense_in_a_config_is_told_or_harmless(
    changes: dict[str, object], nested: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = speculators_config() if nested else plain_config()
    (config["transformer_layer_config"] if nested else config).update(changes)
    folder = write_draft(tmp_path_factory.mktemp("draft"), config, random_weights())
    try:
        checkpoint = read_draft(folder)
        draft = Draft.of(checkpoint, random_embedding())
    except ReplayError:
        return
    output = draft.forward(torch.arange(3), torch.ones(3, SLOTS * WIDTH), torch.arange(3))
    assert output.logits.shape == (3, DRAFT_VOCAB)
