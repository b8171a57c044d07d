"""ModelOpt's own code: how it reads a dump, how it splits slots, when it norms the target, how it shifts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from tests.oracle.borrow import borrow
from tests.oracle.stream import Owner
from tests.oracle.wheels import source

NO_LABEL = {"IGNORE_TOKEN_ID": -100}


def _speculative(version: str) -> Path:
    return source("modelopt", version) / "torch" / "speculative"


def _trainer(version: str) -> Path:
    return _speculative(version) / "plugins" / "hf_eagle.py"


def default_ids(version: str, n_layers: int) -> list[int]:
    return list(borrow(_trainer(version), "default_eagle_aux_layer_ids")(n_layers))


def read_dump(version: str, file: Path) -> dict[str, Any]:
    """A dumped file as the trainer's dataset hands it on."""
    path = _speculative(version) / "eagle" / "utils.py"
    dataset = SimpleNamespace(dumped_files=[file], answer_only_loss=False)
    return dict(borrow(path, "OfflineSupervisedDataset.__getitem__", NO_LABEL)(dataset, 0))


def split_slots(version: str, boundaries: list[int]) -> tuple[list[int], int, bool]:
    """(`fc` input, target, whether the target is said to be before the norm) of streamed slots.

    With the settings that the class itself has.
    """
    path = _speculative(version) / "plugins" / "hf_streaming_dataset.py"
    config = borrow(path, "EagleVllmStreamingConfig")
    fetched = {
        "token_ids": torch.zeros(1, dtype=torch.long),
        "hidden_states": torch.tensor(boundaries, dtype=torch.float32)[None, :, None],
        "loss_mask": torch.ones(1),
    }
    dataset = SimpleNamespace(config=config)
    sample = borrow(path, "EagleVllmStreamingDataset._format", NO_LABEL)(dataset, fetched)
    fc = [int(value) for value in sample["aux_hidden_states"].flatten()]
    return fc, int(sample["base_model_hidden_states"].item()), bool(sample["base_hidden_prenorm"])


def norms(version: str, sample: dict[str, Any]) -> bool:
    """Whether the trainer puts a sample's target through the target's final norm."""
    path = _speculative(version) / "plugins" / "modeling_final_norm.py"
    apply = borrow(path, "_maybe_apply_base_final_norm")
    return torch.isnan(apply(torch.zeros(1), sample, lambda hidden: hidden * torch.nan)).item() is True


def shift(version: str, length: int = 6) -> dict[str, list[int]]:
    """What the draft's first step is fed of a sample in which all at position i is the number i."""
    at = torch.arange(length)[None]
    trainer = Owner(
        _base_model_embeddings=lambda ids: ids,
        _prepare_decoder_attention_mask=lambda mask, *_: mask,
        eagle_config=SimpleNamespace(use_aux_hidden_state=True, draft_vocab_size=1, vocab_size=1),
        eagle_module=SimpleNamespace(fc=lambda hidden: hidden),
    )
    outputs = SimpleNamespace(
        input_embeds=None, aux_hiddens=at.float(), out_hiddens=None, logits=at[..., None].float()
    )
    tokens, states, _, positions, *_ = borrow(_trainer(version), "HFEagleModel._prepare_eagle_inputs")(
        trainer, at, None, None, None, outputs
    )
    return {
        "ids": tokens.flatten().tolist(),
        "states": [int(value) for value in states.flatten()],
        "positions": positions.flatten().tolist(),
    }
