"""SpecForge's offline EAGLE-3 features, as its 0.2 reads them: a torch file a sample, in groups of folders.

    rows_{g}-{g+2000}/data_{row}.ckpt   input_ids, loss_mask int64 [T]; hidden_state [1, T, H], the target
                                        after its final norm; aux_hidden_state [1, T, 3H] in the order of the
                                        wiring
    vocab_mapping/vocab_mapping.pt      the draft's vocabulary where one is asked for: d2t int64 [D], t2d
                                        bool [V]

On load the names swap: `aux_hidden_state` becomes the draft's `hidden_state`, `hidden_state` its `target`.
The trainer counts samples in the order of their paths as texts, in which `data_10` comes before `data_2`:
numbers have leading zeros here, as many as they need, so that this is the order of rows too. It shifts by
itself. Source: `algorithms/eagle3/data.py`, `runtime/data_plane/offline_reader.py` and
`training/model_loading.py` of release 0.2.0.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from datagen.adapters.exports.draft_vocabulary import DraftVocabulary
from datagen.adapters.exports.format import Row, Source
from datagen.adapters.exports.lazy_states import column, one_dtype, side_by_side, states
from datagen.adapters.exports.torch_samples import TorchFileFormat, target_of
from datagen.adapters.exports.whole_files import save_torch
from schemas.problem import Problem

GROUP_ROWS = 2000
VOCABULARY = "vocab_mapping/vocab_mapping.pt"


class SpecForgeFormat(TorchFileFormat):
    """The offline features of EAGLE-3."""

    name = "specforge"
    trainer = "specforge==0.2.0"
    vocabulary_files = (VOCABULARY,)
    holds_out = False

    def problems(self, source: Source) -> Iterator[Problem]:
        return one_dtype(source, source.wiring.fc, "aux_hidden_state")

    def names(self, rows: Sequence[Row]) -> list[str]:
        digits, groups = len(str(len(rows) - 1)), len(str((len(rows) - 1) // GROUP_ROWS * GROUP_ROWS))
        paths = []
        for row in rows:
            first = row.number // GROUP_ROWS * GROUP_ROWS
            folder = f"rows_{first:0{groups}}-{first + GROUP_ROWS}"
            paths.append(f"{folder}/data_{row.number:0{digits}}.ckpt")
        return paths

    def content(self, row: Row, source: Source) -> object:
        return {
            "input_ids": column(source, row, "input_ids"),
            "loss_mask": column(source, row, "loss_mask"),
            "hidden_state": states(source, row, target_of(source.wiring), (1,)),
            "aux_hidden_state": side_by_side(source, row, source.wiring.fc, (1,)),
        }

    def write_vocabulary(self, folder: Path, vocabulary: DraftVocabulary) -> list[str]:
        path = folder / VOCABULARY
        path.parent.mkdir(exist_ok=True)
        maps = {"d2t": torch.from_numpy(vocabulary.d2t), "t2d": torch.from_numpy(vocabulary.t2d)}
        save_torch(maps, path)
        return [VOCABULARY]

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:  # noqa: ARG002
        drafts = f" and model.vocab_mapping_path: {folder / VOCABULARY}" if source.draft_vocab_size else ""
        return f"specforge train -c RUN.yaml with data.hidden_states_path: {folder}{drafts}"
