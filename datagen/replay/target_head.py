"""The target's ends from its files alone: embedding rows, final norm and lm_head, without its layers.

Which modules these are transformers says, by a model without memory (the meta device), so that a norm is run
as its class runs it (RMSNorm, LayerNorm, Gemma's 1 + w). Their weights are found in the files by name.
"""

from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from datagen.engines.architecture import architecture_of, read_config
from datagen.engines.layers import find_decoder
from datagen.replay.errors import ReplayError
from schemas.problem import Problem

_OTHER_NAMES = {"lm_head": "embed_out.weight"}
"""What files call a module that transformers calls otherwise: GPT-NeoX's, which it renames as it loads."""
LOGIT_BYTES = 64 << 20
"""Bytes of logits that `argmax` makes at a time."""


class TargetHead:
    """A target's `embedding` `[V, H]`, final norm and `lm_head` `[V, H]`, in one dtype."""

    def __init__(self, embedding: Tensor, norm: nn.Module, lm_head: Tensor) -> None:
        """Keep what `of` found; `norm` maps `[N, H]` to `[N, H]`."""
        self.embedding = embedding
        self.lm_head = lm_head
        self._norm = norm

    @classmethod
    def of(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> Self:
        """Read the ends of the model in `folder`.

        Raises `OpeningError` for a config that is not understood, `ReplayError` for weights that are not
        there or do not fit it.
        """
        config = read_config(folder, trust_remote_code=False)
        sizes = architecture_of(config)
        model = _without_memory(config)
        body = find_decoder(model).body
        norms = [one for _, one in body.named_children() if _is_norm(one)]
        paths = {id(one): path for path, one in model.named_modules()}
        embedding, head = body.get_input_embeddings(), model.get_output_embeddings()
        problems = []
        if len(norms) != 1:
            problems.append(_problem("final norm", f"expected one norm beside the layers, got {len(norms)}"))
        if type(head) is not nn.Linear:
            problems.append(_problem("lm_head", f"expected a linear layer, got {type(head).__name__}"))
        if problems:
            raise _refusal(folder, problems)
        wanted = {"embedding": f"{paths[id(embedding)]}.weight", "lm_head": f"{paths[id(head)]}.weight"}
        if getattr(config.get_text_config(decoder=True), "tie_word_embeddings", False):
            wanted["lm_head"] = wanted["embedding"]
        norm_path = paths[id(norms[0])]
        wanted |= {name: f"{norm_path}.{name}" for name, _ in norms[0].named_parameters()}
        found = _read(folder, wanted)
        tied = found["embedding"] is found["lm_head"]
        rows = {name: found.pop(name)[: sizes.vocab_size].to(dtype) for name in ("embedding", "lm_head")}
        if tied:
            rows["lm_head"] = rows["embedding"]
        wrong = [
            _problem(name, f"expected {sizes.vocab_size} rows of {sizes.hidden_size}, got {list(one.shape)}")
            for name, one in rows.items()
            if one.shape != (sizes.vocab_size, sizes.hidden_size)
        ]
        if wrong:
            raise _refusal(folder, wrong)
        norms[0].load_state_dict({name: one.to(dtype) for name, one in found.items()}, assign=True)
        return cls(rows["embedding"], norms[0].eval(), rows["lm_head"])

    @torch.inference_mode()
    def norm(self, states: Tensor) -> Tensor:
        """Return the final norm of states `[N, H]`."""
        return torch.as_tensor(self._norm(states.to(self.lm_head.dtype)))

    @torch.inference_mode()
    def logits(self, states: Tensor, *, norm: bool = True, ids: Tensor | None = None) -> Tensor:
        """Return lm_head of states `[N, H]`, of the token `ids` alone where they are given: `[N, V]`.

        Without `norm` the states are taken for normed already. Caps and scales that some models put on their
        logits are left out: they change no argmax.
        """
        rows = self.norm(states) if norm else states.to(self.lm_head.dtype)
        return functional.linear(rows, self.lm_head if ids is None else self.lm_head[ids])

    def argmax(self, states: Tensor, *, norm: bool = True) -> Tensor:
        """Return the target's own next token by each state `[N, H]`: int64 `[N]`."""
        chunk = max(1, LOGIT_BYTES // (len(self.lm_head) * self.lm_head.element_size()))
        return torch.cat([self.logits(some, norm=norm).argmax(-1) for some in torch.split(states, chunk)])


def _is_norm(module: nn.Module) -> bool:
    shapes = [parameter.ndim for parameter in module.parameters()]
    return bool(shapes) and all(n == 1 for n in shapes) and not list(module.children())


def _without_memory(config: Any) -> Any:
    for auto_class in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto_class._model_mapping:
            with torch.device("meta"):
                return auto_class.from_config(config)
    problem = _problem(config.model_type, "expected a type that transformers has a class for, got none")
    raise ReplayError("the target is not understood", [problem])


def _read(folder: Path, wanted: dict[str, str]) -> dict[str, Tensor]:
    """Return the weights of these paths; a checkpoint may put more or less before the last two names."""
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as opened:
                files.update(dict.fromkeys(opened.keys(), file))
        except (SafetensorError, OSError) as error:
            problems.append(_problem(file.name, f"expected a whole safetensors file, got {error}"))
    keys: dict[str, str] = {}
    for name, path in wanted.items():
        other = _OTHER_NAMES.get(path.split(".")[-2], "")
        found = [key for key in (path, other) if key in files][:1]
        found = found or [key for key in files if _ends_alike(key, path)]
        if len(found) == 1:
            keys[name] = found[0]
        else:
            got = ", ".join(found) or "none"
            problems.append(_problem(path, f"expected one weight in the files of {folder.name}, got {got}"))
    if problems:
        raise _refusal(folder, problems)
    read: dict[str, Tensor] = {}
    for key in set(keys.values()):
        with safe_open(files[key], framework="pt") as opened:
            read[key] = opened.get_tensor(key)
    return {name: read[key] for name, key in keys.items()}


def _ends_alike(key: str, path: str) -> bool:
    if any(piece.isdigit() for piece in key.split(".")):
        return False
    return f".{key}".endswith("." + ".".join(path.split(".")[-2:]))


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, kind="model", message=message)


def _refusal(folder: Path, problems: list[Problem]) -> ReplayError:
    return ReplayError(f"the ends of {folder.name} cannot be read from its files", problems)
