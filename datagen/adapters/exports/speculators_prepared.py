"""What speculators' trainer reads beside the states: the prepared conversations, and the tokens' counts.

    data-*.arrow, state.json, ...   HF `save_to_disk`: input_ids, loss_mask int64 [T], seq_len; for torch
    token_freq.pt                   {token id: how often it is trained on}, for the draft's vocabulary

The same samples make the same bytes, whoever hands them over. Source: `train/data.py` and
`train/vocab_mapping.py` of release 0.9.0.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import datasets
import numpy as np
from datasets.arrow_writer import ArrowWriter
from datasets.table import MemoryMappedTable
from numpy.typing import NDArray

from datagen.adapters.exports.whole_files import save_torch
from schemas.record import sha256_hex

TOKEN_COUNTS = "token_freq.pt"
_FEATURES = datasets.Features(
    {
        "input_ids": datasets.List(datasets.Value("int64")),
        "loss_mask": datasets.List(datasets.Value("int64")),
        "seq_len": datasets.Value("int64"),
    }
)


class PreparedSample(NamedTuple):
    """One row: token ids and mask `[T]` of any integer dtype."""

    sample_id: str
    input_ids: NDArray[np.generic]
    loss_mask: NDArray[np.generic]


def write_prepared(folder: Path, samples: Iterable[PreparedSample]) -> list[str]:
    """Write the samples in the order of rows into `folder`, over what lies there, and return the files."""
    counts: Counter[int] = Counter()
    with TemporaryDirectory(dir=folder, prefix=".rows-") as name:
        arrow = Path(name) / "rows.arrow"
        writer = ArrowWriter(features=_FEATURES, path=str(arrow))
        digest = ""
        for sample in samples:
            ids, mask = sample.input_ids.astype(np.int64), sample.loss_mask.astype(np.int64)
            writer.write({"input_ids": ids, "loss_mask": mask, "seq_len": len(ids)})
            counts.update(dict(zip(*_counted(ids[mask != 0]), strict=True)))
            digest = sha256_hex(f"{digest}{sample.sample_id}".encode())
        writer.finalize()
        # Of the content: by default it is of the time of the file, and no two would be equal.
        prepared = datasets.Dataset(
            MemoryMappedTable.from_file(str(arrow)),
            info=datasets.DatasetInfo(features=_FEATURES),
            fingerprint=digest[:16],
        ).with_format("torch")
        datasets.disable_progress_bars()
        prepared.save_to_disk(folder)
    save_torch({token: counts[token] for token in sorted(counts)}, folder / TOKEN_COUNTS)
    arrows = sorted(path.name for path in folder.glob("*.arrow"))
    return [*arrows, "dataset_info.json", "state.json", TOKEN_COUNTS]


def _counted(ids: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    values, counts = np.unique(ids, return_counts=True)
    return values.tolist(), counts.tolist()
