"""Formats of one `torch.save` file a sample, ids, mask and states together, read for an import.

    speculators-v1   data_{i}.pt           input_ids, loss_mask, hidden_states: a list of [T, H]
    specforge        data_{i}.ckpt[.gz]    input_ids, loss_mask, aux_hidden_state [1, T, 3H],
                                           hidden_state [1, T, H]
    modelopt         {conversation}.pt     input_ids, loss_mask, aux_hidden_states [T, kH] (or none, of dumps
                                           for drafts that read none), hidden_states [T, H], conversation_id,
                                           hidden_states_prenorm: whether the last is before the final norm
    eagle            data_{j}.ckpt         input_ids, loss_mask, hidden_state [T, H]

Labels go to SpecForge's and ModelOpt's slots with those of the draft's input first, in the order of the
columns, and the target's last: `hidden_state` is the *last* slot of SpecForge's, not the first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from datagen.adapters.errors import refused
from datagen.adapters.foreign_files import sample_of
from datagen.adapters.foreign_layouts import PRENORM
from datagen.adapters.imports.foreign_content import mask_of, slots_apart, with_whole_states
from datagen.adapters.imports.foreign_listing import FileNames, gap_problems, listed_files
from datagen.adapters.imports.format import ForeignRow, ImportFormat, ImportOptions, Listed
from datagen.adapters.imports.right_padding import without_padding
from datagen.adapters.safe_loading import load
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.problem import Problem

CONVERSATION = "conversation_id"


class _Kind(NamedTuple):
    name: str
    names: FileNames
    layouts: tuple[str, ...]
    """Of `foreign_layouts`, those that are the format's."""
    keys: str
    """What a file of it holds, as a person is told."""
    pads: bool = False


@dataclass(frozen=True)
class TorchFiles:
    """The files of one of these formats; `OpenFiles`."""

    kind: _Kind
    options: ImportOptions
    samples: Sequence[Listed]
    problems: Sequence[Problem]
    claimed: tuple[str, ...] | None = field(default=None)

    def read(self, listed: Listed, *, states: bool = True) -> ForeignRow:
        """Read one file; raises `ForeignFileError`."""
        file = listed.path
        content = with_whole_states(file, load(file, states=states), self.options.dequantise)
        sample = sample_of(file, content, views=True)
        if sample.layout not in self.kind.layouts or not isinstance(content, Mapping):
            message = f"expected a file of {self.kind.name} ({self.kind.keys}), got {sample.layout}"
            raise refused(file, "layout", message, "give the --format that wrote it")
        if sample.token_ids is None:
            raise refused(file, "token_ids", "expected input_ids beside the states, got none")
        row = ForeignRow(
            token_ids=sample.token_ids,
            loss_mask=mask_of(file, content),
            slots=tuple(slots_apart(sample.slots, self.options.target.hidden_size)),
            conversation_id=_conversation(content),
            last=_last(content) if PRENORM in self.kind.keys else None,
        )
        return without_padding(file, row, self.options) if self.kind.pads else row


def _conversation(content: Mapping[object, object]) -> str | None:
    value = content.get(CONVERSATION)
    return value if isinstance(value, str) and value else None


def _last(content: Mapping[object, object]) -> str | None:
    """Return what the flag of the final norm says of the last slot, where a file has one."""
    flag = content.get(PRENORM)
    if isinstance(flag, torch.Tensor) and flag.numel() == 1:
        flag = bool(flag)
    return (FINAL if flag else FINAL_NORMED) if isinstance(flag, bool) else None


@dataclass(frozen=True)
class TorchImport:
    """One of these formats; an `ImportFormat`."""

    kind: _Kind

    @property
    def name(self) -> str:
        """As `--format` says it."""
        return self.kind.name

    def open(self, paths: Sequence[Path], options: ImportOptions) -> TorchFiles:
        """Find the files; what is wrong with them as a whole is in `problems`."""
        samples, problems = listed_files(paths, self.kind.names)
        folders = self.kind.name == "eagle"
        gaps = gap_problems(samples, lambda listed: str(Path(listed.name).parent) if folders else "")
        return TorchFiles(self.kind, options, samples, [*problems, *gaps])


def _names(title: str, pattern: str) -> FileNames:
    return FileNames(title, re.compile(pattern))


TORCH_FORMATS: tuple[ImportFormat, ...] = tuple(
    TorchImport(kind)
    for kind in (
        _Kind(
            "speculators-v1",
            _names("files called data_0.pt", r"data_([0-9]{1,18})\.pt"),
            ("speculators v1 (a list)",),
            "input_ids, hidden_states as a list, loss_mask",
        ),
        _Kind(
            "specforge",
            _names("files called data_0.ckpt or data_0.ckpt.gz", r"data_([0-9]{1,18})\.ckpt(?:\.gz)?"),
            ("SpecForge", "SpecForge DSpark", "hidden_states"),
            "input_ids, aux_hidden_state, hidden_state, loss_mask",
            pads=True,
        ),
        _Kind(
            "modelopt",
            _names("files called {conversation_id}.pt", r".+\.pt"),
            ("ModelOpt", "hidden_states"),
            f"input_ids, aux_hidden_states, hidden_states, loss_mask, conversation_id, {PRENORM}",
        ),
        _Kind(
            "eagle",
            _names("files called data_0.ckpt", r"data_([0-9]{1,18})\.ckpt(?:\.gz)?"),
            ("EAGLE",),
            "input_ids, hidden_state, loss_mask",
        ),
    )
)
