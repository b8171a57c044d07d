"""The tensors of a model's safetensors files by the paths of transformers' modules.

What stands before the last two pieces of a name differs between a checkpoint and the class that loads it, so
a weight is found by its whole name, else by the end of it, the layers' own left out.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from datagen.engines.end_modules import refusal
from schemas.problem import Problem

_OTHER_NAMES = {"lm_head": "embed_out.weight"}
"""What files call a module that transformers calls otherwise: GPT-NeoX's, which it renames as it loads."""


class NamedWeights:
    """The weights of a folder, each read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        """List the weights; raises `OpeningError` with the files that are cut."""
        self._folder = folder
        self._file_of: dict[str, str] = {}
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            self._file_of = dict(json.loads(index.read_text("utf-8"))["weight_map"])
            return
        problems = []
        for file in sorted(folder.glob("*.safetensors")):
            try:
                with safe_open(file, framework="pt") as opened:
                    self._file_of.update(dict.fromkeys(opened.keys(), file.name))
            except (SafetensorError, OSError) as error:
                problems.append(_cut(file, error))
        if problems:
            raise refusal(problems)

    def find(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the key of each path of a parameter; raises `OpeningError` with every one not found once."""
        keys, problems = {}, []
        for path in sorted(set(paths)):
            found = self._named(path)
            if len(found) == 1:
                keys[path] = found[0]
            else:
                message = f"expected one weight in the files of {self._folder.name}, got "
                problems.append(
                    Problem(where=path, kind="model", message=message + (", ".join(found) or "none"))
                )
        if problems:
            raise refusal(problems)
        return keys

    def shape(self, key: str) -> tuple[int, ...]:
        """Return a weight's shape; raises `OpeningError` where its file is cut."""
        try:
            with safe_open(self._folder / self._file_of[key], framework="pt") as opened:
                return tuple(opened.get_slice(key).get_shape())
        except (SafetensorError, OSError) as error:
            raise refusal([_cut(self._folder / self._file_of[key], error)]) from error

    def read(self, key: str) -> Tensor:
        """Return a weight; raises `OpeningError` where its file is cut."""
        try:
            with safe_open(self._folder / self._file_of[key], framework="pt") as opened:
                tensor: Tensor = opened.get_tensor(key)
                return tensor
        except (SafetensorError, OSError) as error:
            raise refusal([_cut(self._folder / self._file_of[key], error)]) from error

    def _named(self, path: str) -> list[str]:
        pieces = path.split(".")
        for name in (path, _OTHER_NAMES.get(pieces[-2], "")):
            if name in self._file_of:
                return [name]
        end = "." + ".".join(pieces[-2:])
        return [key for key in self._file_of if f".{key}".endswith(end) and not _is_inside_a_layer(key)]


def _is_inside_a_layer(key: str) -> bool:
    return any(piece.isdigit() for piece in key.split("."))


def _cut(file: Path, error: Exception) -> Problem:
    return Problem(where=file.name, kind="model", message=f"expected a whole safetensors file, got {error}")
