"""ModelOpt's offline dump, as its 0.47 reads it: a torch file a sample, named by its conversation.

    hidden_states/{conversation}.pt   input_ids, loss_mask int64 [T]; hidden_states [T, H], the target;
                                      aux_hidden_states [T, kH] in the order of the wiring; conversation_id;
                                      hidden_states_prenorm: whether the final norm is still to be run
    d2t.pt                            the draft's vocabulary where one is asked for: int64 [D]

The reader runs the norm where a file says so, and only for model types that it knows; for others the state
after the norm is written. It takes every `.pt` of its folder as a sample, so the vocabulary lies beside it. A
conversation of several samples gives each a name of its own. The trainer shifts by itself. Source:
`torch/speculative/eagle/utils.py`, `plugins/modeling_final_norm.py` and `plugins/hf_eagle.py` of 0.47.0.
"""

import re
import shlex
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import torch

from datagen.adapters.exports.draft_vocabulary import DraftVocabulary
from datagen.adapters.exports.format import Row, Source
from datagen.adapters.exports.lazy_states import column, one_dtype, side_by_side, states
from datagen.adapters.exports.torch_samples import TorchFileFormat, target_of
from datagen.adapters.exports.whole_files import save_torch
from schemas.boundary import FINAL
from schemas.problem import Problem
from schemas.schema import Schema

STATES = "hidden_states"
VOCABULARY = "d2t.pt"
NORMED_BY_READER = frozenset(
    {
        "deepseek_v3",
        "kimi_k2",
        "kimi_k25",
        "llama",
        "minimax_m3_vl_text",
        "mistral",
        "mixtral",
        "nemotron_h",
        "qwen2",
        "qwen3",
        "qwen3_moe",
    }
)
"""The model types whose final norm its reader runs; it ends with an error for any other."""
_NAME_BYTES = 120
_ENDS_IN_ID = re.compile(r"\.[0-9a-fA-F]{64}\Z")


class ModelOptFormat(TorchFileFormat):
    """The dump of EAGLE-3, the target before the norm wherever the reader can run it."""

    name = "modelopt"
    trainer = "modelopt-flagged==0.47.0"
    trainer_of_normed = "modelopt-hf==0.47.0"
    vocabulary_files = (VOCABULARY,)
    holds_out = False

    def trainer_of(self, schema: Schema) -> str:
        flagged = FINAL in schema.names and schema.target.model_type in NORMED_BY_READER
        return self.trainer if flagged else self.trainer_of_normed

    def problems(self, source: Source) -> Iterator[Problem]:
        return one_dtype(source, source.wiring.fc, "aux_hidden_states")

    def names(self, rows: Sequence[Row]) -> list[str]:
        said = [_file_name(row.location.conversation_id) for row in rows]
        # Some disks take `A` and `a` for one name.
        samples = Counter(name.casefold() for name in said)
        return [
            f"{STATES}/{_apart(name, row, samples[name.casefold()])}.pt"
            for name, row in zip(said, rows, strict=True)
        ]

    def content(self, row: Row, source: Source) -> object:
        target = source.wiring.target
        return {
            "input_ids": column(source, row, "input_ids"),
            "hidden_states": states(source, row, target_of(source.wiring)),
            "aux_hidden_states": side_by_side(source, row, source.wiring.fc),
            "loss_mask": column(source, row, "loss_mask"),
            "conversation_id": row.location.conversation_id,
            "hidden_states_prenorm": target is not None and target.applies_norm,
        }

    def sized_by(self, row: Row) -> Hashable:
        return row.location.n_tokens, row.location.conversation_id

    def write_vocabulary(self, folder: Path, vocabulary: DraftVocabulary) -> list[str]:
        save_torch(torch.from_numpy(vocabulary.d2t), folder / VOCABULARY)
        return [VOCABULARY]

    def next_step(self, folder: Path, n_train: int, n_rows: int, source: Source) -> str:  # noqa: ARG002
        states, vocabulary = (shlex.quote(str(folder / name)) for name in (STATES, VOCABULARY))
        drafts = f" data.draft_vocab_cache={vocabulary}" if source.draft_vocab_size else ""
        return (
            "ModelOpt's speculative_decoding example with data.mode=offline "
            f"data.offline_data_path={states}{drafts}, and answer_only_loss for the loss mask"
        )


def _file_name(conversation_id: str) -> str:
    """Return a conversation's id as a file may be called.

    Characters that a file's name cannot hold are written as in a URL, and a long id ends in its digest.

    >>> _file_name("a/b"), _file_name(".a"), _file_name("")
    ('a%2Fb', '%2Ea', '%')
    """
    name = quote(conversation_id, safe=" ", errors="surrogatepass") or "%"
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if len(name) > _NAME_BYTES:
        digest = sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[: _NAME_BYTES - 65]}.{digest}"
    return name


def _apart(name: str, row: Row, n_samples: int) -> str:
    """Return the name with the sample's own where several samples have it, or it ends as one that has."""
    return f"{name}.{row.location.sample_id}" if n_samples > 1 or _ENDS_IN_ID.search(name) else name
