"""speculators' first offline format ("v1"), as its 0.4 reads it: a torch file a sample.

    data_{row}.pt         input_ids, loss_mask int64 [T]; hidden_states: a list of [T, H] in the order of the
                          wiring, the target last, before the final norm, which the trainer runs since 0.4
    sample_lengths.json   {"row": T}, by which the trainer packs
    data_config.json      what is in the files, for people
    d2t.npy, t2d.npy      the draft's vocabulary where one is asked for

The trainer takes every file below the folder whose name ends in `pt`, shuffles them, and cuts off a tenth for
validation whatever conversation it is of. It shifts by itself. Its layer ids name what a layer writes: id `i`
is boundary `i + 1`. Source: `train/data.py` and `data_generation/config_generator.py` of release 0.4.0.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from datagen.adapters.exports.draft_vocabulary import DraftVocabulary
from datagen.adapters.exports.format import Row, Source
from datagen.adapters.exports.lazy_states import column, one_dtype, states
from datagen.adapters.exports.speculators_files import (
    VOCABULARY,
    slots_of,
    vocabulary_flags,
    write_arrays,
)
from datagen.adapters.exports.torch_samples import TorchFileFormat
from schemas.problem import Problem

LENGTHS = "sample_lengths.json"
CONFIG = "data_config.json"
CONFIG_VERSION = "2.0"


class SpeculatorsV1Format(TorchFileFormat):
    """The lists of 0.4, which later releases up to 0.7 read as well."""

    name = "speculators-v1"
    trainer = "speculators==0.4.0"
    vocabulary_files = VOCABULARY
    holds_out = False
    rows_told = "of which the trainer holds a tenth out by itself, whatever conversation they are of"

    def problems(self, source: Source) -> Iterator[Problem]:
        return one_dtype(source, slots_of(source.wiring), "hidden_states")

    def names(self, rows: Sequence[Row]) -> list[str]:
        return [f"data_{row.number}.pt" for row in rows]

    def content(self, row: Row, source: Source) -> object:
        return {
            "input_ids": column(source, row, "input_ids"),
            "hidden_states": [states(source, row, name) for name in slots_of(source.wiring)],
            "loss_mask": column(source, row, "loss_mask"),
        }

    def write_beside(self, folder: Path, rows: Sequence[Row], source: Source) -> list[str]:
        lengths = {str(row.number): row.location.n_tokens for row in rows}
        (folder / LENGTHS).write_text(json.dumps(lengths), encoding="utf-8")
        (folder / CONFIG).write_text(json.dumps(_config(source, len(rows)), indent=2) + "\n", "utf-8")
        return [LENGTHS, CONFIG]

    def write_vocabulary(self, folder: Path, vocabulary: DraftVocabulary) -> list[str]:
        return write_arrays(folder, vocabulary)

    def beside_bytes(self, source: Source) -> int:
        return 16 * len(source.rows) + 2048

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:  # noqa: ARG002
        drafts = vocabulary_flags(folder) if source.draft_vocab_size else ""
        return (
            f"scripts/train.py of {self.trainer} with --data-path {quote(str(folder))}{drafts} "
            "--verifier-name-or-path TARGET --save-path DRAFT"
        )


def _config(source: Source, n_rows: int) -> dict[str, object]:
    target, slots = source.schema.target, slots_of(source.wiring)
    spec = source.spec(slots[0])
    n_tokens = {"dtype": "torch.long", "shape": "[seq_len]"}
    schema = {
        "input_ids": n_tokens,
        "hidden_states": {
            "dtype": f"list[torch.{spec.dtype}]",
            "shape": f"list of [seq_len, {spec.width}]",
            "num_tensors": len(slots),
        },
        "loss_mask": n_tokens,
    }
    ids = [*(boundary - 1 for boundary in source.wiring.boundaries), target.n_layers - 1]
    return {
        "version": CONFIG_VERSION,
        "model": {"target_model_path": target.model_id, "hidden_size": target.hidden_size},
        "data": {"num_samples": n_rows},
        "hidden_states": {"layer_ids": ids, "description": ", ".join(slots)},
        "format": {"file_pattern": "data_{idx}.pt", "schema": schema},
    }
