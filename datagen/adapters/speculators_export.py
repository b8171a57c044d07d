"""speculators' offline format, as its trainer reads it since 0.5: an Arrow dataset, and a file a row.

    data-*.arrow, state.json, ...       HF `save_to_disk`: input_ids, loss_mask int64 [T], seq_len; for torch
    token_freq.pt                       {token id: how often it is trained on}, for the draft's vocabulary
    hidden_states/hs_{row}.safetensors  hidden_states [T, K, H] in the order of the wiring, the target last;
                                        token_ids int64 [T]

`row` counts over training and validation rows together. The trainer shifts and norms by itself: states and
tokens are written as they are stored. Source: `train/data.py`, `train/vocab_mapping.py` and
`hs_connectors/transfer.py` of release 0.9.0.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import datasets
import numpy as np
import torch
from datasets.arrow_writer import ArrowWriter
from datasets.table import MemoryMappedTable
from numpy.typing import NDArray

from datagen.adapters.exporting import PlannedFile, Row, Source
from schemas.problem import Problem
from schemas.record import sha256_hex
from schemas.schema import ITEM_BYTES
from schemas.wiring import Wiring

STATES = "hidden_states"
TOKEN_COUNTS = "token_freq.pt"
_PIECE_BYTES = 8 * 2**20
_BLOCK_ROWS = 64
_SAFETENSORS_DTYPES: Mapping[str, str] = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_FEATURES = datasets.Features(
    {
        "input_ids": datasets.List(datasets.Value("int64")),
        "loss_mask": datasets.List(datasets.Value("int64")),
        "seq_len": datasets.Value("int64"),
    }
)


def slots_of(wiring: Wiring) -> tuple[str, ...]:
    """Return the tensors of `hidden_states` in their order: the draft's input, then the target."""
    return (*wiring.fc, *([wiring.target.tensor] if wiring.target else []))


class SpeculatorsFormat:
    """The current offline format; an `ExportFormat`."""

    name = "speculators"
    trainer = "speculators==0.9.0"

    def problems(self, source: Source) -> Iterator[Problem]:
        names = slots_of(source.wiring)
        dtypes = {name: source.schema.tensor(name).dtype for name in names}
        if len(set(dtypes.values())) > 1:
            told = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
            yield Problem(
                where=STATES,
                kind="dtype",
                message=f"expected one dtype, since the slots are one array, got {told}",
                repair="make the dataset with one dtype",
            )

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
        n_tokens, slots = row.location.n_tokens, slots_of(source.wiring)
        step = max(_PIECE_BYTES // (len(slots) * _row_bytes(source)) // _BLOCK_ROWS, 1) * _BLOCK_ROWS
        for first in range(0, n_tokens, step):
            end = min(first + step, n_tokens)
            read = [source.tensor(row, name, first, end) for name in slots]
            stacked = np.empty((end - first, len(slots), read[0].shape[1]), read[0].dtype)
            for slot, states in enumerate(read):
                stacked[:, slot] = states
            yield _bytes(stacked)

    def write_beside(self, folder: Path, rows: Sequence[Row], source: Source) -> list[str]:
        counts: Counter[int] = Counter()
        with TemporaryDirectory(dir=folder, prefix=".rows-") as name:
            arrow = Path(name) / "rows.arrow"
            writer = ArrowWriter(features=_FEATURES, path=str(arrow))
            digest = ""
            for row in rows:
                ids = source.tokens(row, "input_ids").astype(np.int64)
                mask = source.tokens(row, "loss_mask").astype(np.int64)
                writer.write({"input_ids": ids, "loss_mask": mask, "seq_len": len(ids)})
                counts.update(dict(zip(*_counted(ids[mask != 0]), strict=True)))
                digest = sha256_hex(f"{digest}{row.location.sample_id}".encode())
            writer.finalize()
            # Of the content: by default it is of the time of the file, and no two exports would be equal.
            prepared = datasets.Dataset(
                MemoryMappedTable.from_file(str(arrow)),
                info=datasets.DatasetInfo(features=_FEATURES),
                fingerprint=digest[:16],
            ).with_format("torch")
            datasets.disable_progress_bars()
            prepared.save_to_disk(folder)
        torch.save({token: counts[token] for token in sorted(counts)}, folder / TOKEN_COUNTS)
        arrows = sorted(path.name for path in folder.glob("*.arrow"))
        return [*arrows, "dataset_info.json", "state.json", TOKEN_COUNTS]

    def beside_bytes(self, rows: Sequence[Row]) -> int:
        # Two int64 columns, one length and two offsets a row; a token that is trained on is counted once.
        return sum(16 * row.location.n_tokens + 16 for row in rows) + 2**16

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:
        ids = " ".join(map(str, source.wiring.boundaries))
        return (
            f"speculators train --data-path {folder} --target-layer-ids {ids} --on-missing raise "
            f"--train-data-ratio {train_ratio(n_train, n_rows)} --verifier-name-or-path TARGET "
            "--speculator-type eagle3 --save-path DRAFT"
        )


def train_ratio(n_train: int, n_rows: int) -> float:
    """Return the ratio from which the trainer's `int(rows * ratio)` makes `n_train` rows.

    >>> [int(436 * train_ratio(n, 436)) for n in (1, 391, 435)]
    [1, 391, 435]
    """
    return 1.0 if n_train == n_rows else round((n_train + 0.5) / n_rows, 9)


def _header(row: Row, source: Source) -> bytes:
    """Return the head of a safetensors file: its length, then what lies where; padded to 8 bytes.

    Names travel in `__metadata__`, which the trainer does not read: a slot of a stack has none otherwise.
    """
    n_tokens, slots = row.location.n_tokens, slots_of(source.wiring)
    spec = source.schema.tensor(slots[0])
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
    spec = source.schema.tensor(slots_of(source.wiring)[0])
    return spec.width * ITEM_BYTES[spec.dtype]


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1).data


def _counted(ids: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    values, counts = np.unique(ids, return_counts=True)
    return values.tolist(), counts.tolist()
