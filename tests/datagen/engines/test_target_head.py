"""The target's ends read from files, against the whole model of transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from datagen.engines import target_head
from datagen.engines.errors import OpeningError
from datagen.engines.target_head import TargetHead
from tests.datagen.engines import tiny_models

VOCAB = tiny_models.VOCAB
FAMILIES = ("llama", "qwen3", "gemma3", "gpt2", "gpt_neox", "deepseek_v3", "tied")


def _model(name: str) -> Any:
    """Return a model whose norms differ from their first values, so that 1 + w and w differ."""
    if name == "tied":
        sizes: dict[str, Any] = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2}
        heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
        config = transformers.LlamaConfig(vocab_size=VOCAB, tie_word_embeddings=True, **sizes, **heads)
        model = AutoModelForCausalLM.from_config(config)
    else:
        model = tiny_models.build(name)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data = parameter.data + 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def _last(model: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the final norm reads and the logits that the model makes of it."""
    found: list[torch.Tensor] = []
    body = model.base_model
    norm = next(one for name, one in body.named_children() if "norm" in name or name == "ln_f")
    hook = norm.register_forward_pre_hook(lambda _module, given: found.append(given[0][0]))
    with torch.no_grad():
        logits = model(ids[None]).logits[0]
    hook.remove()
    return found[0], logits


@pytest.mark.parametrize("name", FAMILIES)
def test_as_the_whole_model(name: str, tmp_path: Path) -> None:
    model = _model(name)
    model.save_pretrained(tmp_path)
    head = TargetHead.of(tmp_path)
    ids = torch.arange(2, 14)
    final, logits = _last(model, ids)
    torch.testing.assert_close(head.logits(final), logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(head.logits(final, ids=ids), logits[:, ids], rtol=1e-4, atol=1e-4)
    assert torch.equal(head.argmax(final), logits.argmax(-1))
    assert torch.equal(head.argmax(head.norm(final), norm=False), logits.argmax(-1))
    assert torch.equal(head.embedding, model.get_input_embeddings().weight[:VOCAB])
    assert not torch.allclose(head.logits(final, norm=False), logits, atol=1e-2)


def test_tied_rows_are_one_tensor(tmp_path: Path) -> None:
    _model("tied").save_pretrained(tmp_path)
    head = TargetHead.of(tmp_path)
    assert head.embedding is head.lm_head


def test_argmax_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model("llama")
    model.save_pretrained(tmp_path)
    head = TargetHead.of(tmp_path)
    final, logits = _last(model, torch.arange(2, 14))
    monkeypatch.setattr(target_head, "LOGIT_BYTES", 5 * VOCAB * 4)
    assert torch.equal(head.argmax(final), logits.argmax(-1))


def test_ties_are_told_where_a_rounding_decides(tmp_path: Path) -> None:
    head = TargetHead.of(tiny_models.save("llama", tmp_path), dtype="float32")
    states = torch.randn(6, 48, generator=torch.Generator().manual_seed(0))
    assert not head.ties(states).any()
    best = head.argmax(states)
    other = (int(best[2]) + 1) % len(head.lm_head)
    head.lm_head[other] = head.lm_head[best[2]]
    assert head.ties(states)[2]


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    _model("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: one for name, one in weights.items() if name not in ("model.norm.weight", "lm_head.weight")}
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(OpeningError) as caught:
        TargetHead.of(tmp_path)
    assert {problem.where for problem in caught.value.problems} == {"lm_head.weight", "model.norm.weight"}


def test_rows_of_another_size(tmp_path: Path) -> None:
    _model("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["lm_head.weight"] = weights["lm_head.weight"][:-1].clone()
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(OpeningError, match=f"lm_head: expected {VOCAB} rows of 48, got"):
        TargetHead.of(tmp_path)


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    _model("llama").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(OpeningError, match="expected a whole safetensors file"):
        TargetHead.of(tmp_path)


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(OpeningError):
        TargetHead.of(tmp_path)
