"""The ends of a model from its files alone: embedding rows, final norm and lm_head, without its layers.

For engines whose model runs elsewhere. Which modules these are transformers says, by a model without memory
(the meta device); their weights are found in the files by the ends of their names, since what stands before
differs between a checkpoint and the class that loads it. What is not found once is told, never guessed.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from datagen.engines.errors import OpeningError
from datagen.engines.layers import find_decoder
from datagen.engines.loading import TORCH_DTYPES
from schemas.problem import Problem
from schemas.schema import DType

LOGIT_BYTES = 64 << 20
"""Bytes of logits that the head makes at a time."""


class FilesHead:
    """A model's embedding, final norm and head in `dtype`, read when they are first needed."""

    def __init__(self, folder: Path, config: Any, dtype: DType) -> None:
        """Find the modules; raises `OpeningError` with what cannot be told from the files.

        An embedding that is more than a table is told by `embedding_problem` alone.
        """
        self._dtype = TORCH_DTYPES[dtype]
        self._files = _Weights(folder)
        model = _without_memory(config)
        body = find_decoder(model).body
        norms = [(name, one) for name, one in body.named_children() if _is_norm(one)]
        embedding, head = body.get_input_embeddings(), model.get_output_embeddings()
        problems = []
        if len(norms) != 1:
            message = (
                f"expected one norm beside the layers, got {', '.join(name for name, _ in norms) or 'none'}"
            )
            problems.append(_problem("final norm", message))
        if type(head) is not nn.Linear:
            problems.append(_problem("lm_head", f"expected a linear layer, got {type(head).__name__}"))
        if problems:
            raise _refusal(problems)
        self._norm = norms[0][1]
        self.embedding_problem = _embedding_problem(body, embedding, norms[0][1])
        paths = {id(one): path for path, one in model.named_modules()}
        text = config.get_text_config(decoder=True)
        self._embedding_path = paths[id(embedding)]
        tied = head.weight is embedding.weight
        self._head_path = self._embedding_path if tied else paths[id(head)]
        self._norm_path = paths[id(self._norm)]
        self._vocab_size = int(text.vocab_size)
        self._loaded: dict[str, Tensor] = {}
        self._norm_loaded = False
        self._check()

    def _check(self) -> None:
        wanted = {self._embedding_path, self._head_path, self._norm_path}
        problems = [found for path in sorted(wanted) if (found := self._files.problem(path)) is not None]
        if problems:
            raise _refusal(problems)

    def embed(self, token_ids: Sequence[int] | NDArray[np.int32]) -> Tensor:
        """Return the rows [T, H] of the embedding table, in the engine's dtype."""
        ids = torch.from_numpy(np.asarray(token_ids, np.int64))
        return self._weight(self._embedding_path).index_select(0, ids).to(self._dtype)

    def norm(self, final: Tensor) -> Tensor:
        """Return `norm(final)` [T, H]."""
        if not self._norm_loaded:
            state = {
                name: self._files.read(f"{self._norm_path}.{name}").to(self._dtype)
                for name, _ in self._norm.named_parameters()
            }
            self._norm.load_state_dict(state, assign=True)
            self._norm_loaded = True
        with torch.inference_mode():
            return torch.as_tensor(self._norm(final))

    def choose(self, final: Tensor) -> NDArray[np.int32]:
        """Return `argmax(lm_head(norm(final)))` [T]."""
        weight = self._weight(self._head_path)[: self._vocab_size]
        chunk = max(1, LOGIT_BYTES // (len(weight) * 4))
        chosen = []
        with torch.inference_mode():
            for some in torch.split(self.norm(final), chunk):
                logits = nn.functional.linear(some, weight.to(some.dtype))
                chosen.append(logits.argmax(-1).to(torch.int32))
        return np.asarray(torch.cat(chosen).numpy(), np.int32)

    def _weight(self, path: str) -> Tensor:
        if path not in self._loaded:
            self._loaded[path] = self._files.read(f"{path}.weight")
        return self._loaded[path]

    def close(self) -> None:
        """Drop the weights."""
        self._loaded.clear()


def _embedding_problem(body: Any, embedding: nn.Module, norm: nn.Module) -> Problem | None:
    """Return what keeps the table's rows from being what goes into the first layer, as far as modules say."""
    known = (embedding, norm)
    others = [
        name
        for name, one in body.named_children()
        if one not in known and not isinstance(one, nn.ModuleList) and list(one.parameters())
    ]
    if type(embedding) is not nn.Embedding:
        got = type(embedding).__name__
    elif others:
        got = f"{', '.join(others)} beside it"
    else:
        return None
    return _problem("embed", f"expected a plain embedding table before the first layer, got {got}")


class _Weights:
    """The tensors of a folder's safetensors files, by the ends of their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file_of: dict[str, str] = {}
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            self._file_of = dict(json.loads(index.read_text("utf-8"))["weight_map"])
            return
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="pt") as opened:
                self._file_of.update(dict.fromkeys(opened.keys(), file.name))

    def problem(self, path: str) -> Problem | None:
        """Return why the weight of the module at `path` cannot be told, `None` where it can."""
        found = self._named(f"{path}.weight")
        if len(found) == 1:
            return None
        got = ", ".join(found) or "none"
        return _problem(path, f"expected one weight in the files of {self._folder.name}, got {got}")

    def read(self, name: str) -> Tensor:
        (key,) = self._named(name)
        with safe_open(self._folder / self._file_of[key], framework="pt") as opened:
            tensor: Tensor = opened.get_tensor(key)
            return tensor

    def _named(self, name: str) -> list[str]:
        """Return the key of this name; else those that end as it does, layers left out."""
        if name in self._file_of:
            return [name]
        pieces = name.split(".")
        end = "." + ".".join(pieces[-2:])
        return [key for key in self._file_of if f".{key}".endswith(end) and not _is_inside_a_layer(key)]


def _is_inside_a_layer(key: str) -> bool:
    return any(piece.isdigit() for piece in key.split("."))


def _is_norm(module: nn.Module) -> bool:
    shapes = [parameter.ndim for parameter in module.parameters()]
    return bool(shapes) and all(n == 1 for n in shapes) and not list(module.children())


def _without_memory(config: Any) -> Any:
    for auto_class in (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in auto_class._model_mapping:
            with torch.device("meta"):
                return auto_class.from_config(config)
    raise _refusal(
        [_problem(config.model_type, "expected a type that transformers has a class for, got none")]
    )


def _problem(where: str, message: str) -> Problem:
    return Problem(where=where, kind="model", message=message)


def _refusal(problems: Sequence[Problem]) -> OpeningError:
    return OpeningError("the ends of the model cannot be read from its files", problems)
