"""speculators' offline format, as its trainer reads it since 0.5: an Arrow dataset, and a file a row.

    data-*.arrow, state.json, ...       HF `save_to_disk`: input_ids, loss_mask int64 [T], seq_len; for torch
    token_freq.pt                       {token id: how often it is trained on}, for the draft's vocabulary
    d2t.npy, t2d.npy                    that vocabulary where one is asked for: offsets int64 [D], bool [V]
    hidden_states/hs_{row}.safetensors  hidden_states [T, K, H] in the order of the wiring, the target last;
                                        token_ids int64 [T]

`row` counts over training and validation rows together. The trainer shifts and norms by itself: states and
tokens are written as they are stored. Source: `train/data.py`, `train/vocab_mapping.py` and
`hs_connectors/transfer.py` of release 0.9.0.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from datagen.adapters.exports.draft_vocabulary import DraftVocabulary
from datagen.adapters.exports.format import ExportFormat, PlannedFile, Row, Source
from datagen.adapters.exports.lazy_states import one_dtype, side_by_side
from datagen.adapters.exports.speculators_prepared import PreparedSample, write_prepared
from datagen.adapters.exports.whole_files import save_array
from datagen.store.trainer_rows import train_ratio
from schemas.problem import Problem
from schemas.schema import ITEM_BYTES
from schemas.wiring import Wiring

STATES = "hidden_states"
VOCABULARY = ("d2t.npy", "t2d.npy")
_SAFETENSORS_DTYPES: Mapping[str, str] = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def slots_of(wiring: Wiring) -> tuple[str, ...]:
    """Return the tensors of `hidden_states` in their order: the draft's input, then the target."""
    return (*wiring.fc, *([wiring.target.tensor] if wiring.target else []))


class SpeculatorsFormat(ExportFormat):
    """The current offline format."""

    name = "speculators"
    trainer = "speculators==0.9.0"
    vocabulary_files = VOCABULARY

    def problems(self, source: Source) -> Iterator[Problem]:
        return one_dtype(source, slots_of(source.wiring), STATES)

    def planned(self, rows: Sequence[Row], source: Source) -> list[PlannedFile]:
        planned = []
        for row in rows:
            path = f"{STATES}/hs_{row.number}.safetensors"
            n_tokens = row.location.n_tokens
            payload = n_tokens * (8 + len(slots_of(source.wiring)) * _row_bytes(source))
            planned.append(PlannedFile(path, (row,), len(_header(row, source)) + payload))
        return planned

    def pieces(self, file: PlannedFile, source: Source) -> Iterator[memoryview | bytes]:
        (row,) = file.rows
        yield _header(row, source)
        yield _bytes(source.tokens(row, "input_ids").astype("<i8"))
        # `[T, K, H]` and `[T, K*H]` are the same bytes.
        for stacked in side_by_side(source, row, slots_of(source.wiring)).read():
            yield _bytes(stacked)

    def write_beside(self, folder: Path, rows: Sequence[Row], source: Source) -> list[str]:
        return write_prepared(
            folder,
            (
                PreparedSample(
                    row.location.sample_id, source.tokens(row, "input_ids"), source.tokens(row, "loss_mask")
                )
                for row in rows
            ),
        )

    def write_vocabulary(self, folder: Path, vocabulary: DraftVocabulary) -> list[str]:
        return write_arrays(folder, vocabulary)

    def beside_bytes(self, source: Source) -> int:
        # Two int64 columns, one length and two offsets a row; a token that is trained on is counted once.
        return sum(16 * row.location.n_tokens + 16 for row in source.rows) + 2**16

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:
        ids = " ".join(map(str, source.wiring.boundaries))
        drafts = vocabulary_flags(folder) if source.draft_vocab_size else ""
        return (
            f"speculators train --data-path {quote(str(folder))} --target-layer-ids {ids} --on-missing raise "
            f"--train-data-ratio {train_ratio(n_train, n_rows)} --verifier-name-or-path TARGET "
            f"--speculator-type eagle3 --save-path DRAFT{drafts}"
        )


def vocabulary_flags(folder: Path) -> str:
    """Return the trainer's flags of the draft's vocabulary, each behind a space.

    >>> vocabulary_flags(Path("a b"))
    " --d2t-path 'a b/d2t.npy' --t2d-path 'a b/t2d.npy'"
    """
    return "".join(f" --{name[:3]}-path {quote(str(folder / name))}" for name in VOCABULARY)


def write_arrays(folder: Path, vocabulary: DraftVocabulary) -> list[str]:
    """Write a draft's vocabulary as speculators' trainers read it, and return the files' names."""
    for name, array in zip(VOCABULARY, (vocabulary.d2t, vocabulary.t2d), strict=True):
        save_array(array, folder / name)
    return list(VOCABULARY)


def _header(row: Row, source: Source) -> bytes:
    """Return the head of a safetensors file: its length, then what lies where; padded to 8 bytes.

    Names travel in `__metadata__`, which the trainer does not read: a slot of a stack has none otherwise.
    """
    n_tokens, slots = row.location.n_tokens, slots_of(source.wiring)
    spec = source.spec(slots[0])
    id_bytes = 8 * n_tokens
    head = {
        "__metadata__": {"strata.slots": ",".join(slots), "strata.sample_id": row.location.sample_id},
        "token_ids": {"dtype": "I64", "shape": [n_tokens], "data_offsets": [0, id_bytes]},
        STATES: {
            "dtype": _SAFETENSORS_DTYPES[spec.dtype],
            "shape": [n_tokens, len(slots), spec.width],
            "data_offsets": [id_bytes, id_bytes + n_tokens * len(slots) * spec.row_bytes],
        },
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _row_bytes(source: Source) -> int:
    spec = source.spec(slots_of(source.wiring)[0])
    return spec.width * ITEM_BYTES[spec.dtype]


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1).data
