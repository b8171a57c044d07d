"""DeepSpec's own capture and its writer of target caches, on a CPU; started by `writers.py`.

Its own: the forward with hooks, the writer with its queue, the shards' names, the index and the manifest. The
command that calls these in turn (`scripts/data/prepare_target_cache.py`) wants a GPU and its own rendering:
its loop is here, over rows that hold `input_ids` and `loss_mask`, padded to the longest of a batch.

Usage: CLONE MODEL ROWS.json OUT ID ..., the ids being the layers to capture. `OUT.pt` gets the samples that
the writer was handed.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import AutoModel

BATCH, PAD, SHARD_BYTES = 3, 2, 100_000


def packages(clone: Path) -> None:
    """Make its modules importable without what their packages bring along."""
    for name in ("deepspec", "deepspec.data", "deepspec.modeling"):
        package = ModuleType(name)
        package.__path__ = [str(clone.joinpath(*name.split(".")))]
        sys.modules[name] = package
    parser: Any = ModuleType("deepspec.data.parser")
    parser.preprocess_record = None
    sys.modules[parser.__name__] = parser


def batches(rows: list[dict[str, list[int]]]) -> list[dict[str, torch.Tensor]]:
    made = []
    for first in range(0, len(rows), BATCH):
        some = rows[first : first + BATCH]
        longest = max(len(row["input_ids"]) for row in some)

        def padded(lists: list[list[int]], filling: int, longest: int = longest) -> torch.Tensor:
            return torch.tensor([one + [filling] * (longest - len(one)) for one in lists])

        made.append(
            {
                "input_ids": padded([row["input_ids"] for row in some], PAD),
                "loss_mask": padded([row["loss_mask"] for row in some], 0),
                "attention_mask": padded([[1] * len(row["input_ids"]) for row in some], 0),
            }
        )
    return made


def main() -> None:
    clone, model_folder, rows_file, out = map(Path, sys.argv[1:5])
    layer_ids = [int(one) for one in sys.argv[5:]]
    packages(clone)
    cache: Any = import_module("deepspec.data.target_cache_dataset")
    extract: Any = import_module("deepspec.modeling.target_extract")
    rows = json.loads(rows_file.read_text(encoding="utf-8"))
    model = AutoModel.from_pretrained(model_folder, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    cache.prepare_target_cache_output_dir(str(out))
    rank_dir = out / "_tmp" / "rank_0"
    rank_dir.mkdir()
    writer = cache.AsyncTargetCacheWriter(rank_dir=str(rank_dir), max_shard_bytes=SHARD_BYTES)
    handed = []
    for batch in batches(rows):
        asked = {name: batch[name] for name in ("input_ids", "attention_mask")}
        got = extract.run_target_forward_with_hooks(target_model=model, target_layer_ids=layer_ids, **asked)
        tensors = batch | vars(got)
        for place, length in enumerate(batch["attention_mask"].sum(dim=1).tolist()):
            sample = {name: tensor[place, :length].clone() for name, tensor in tensors.items()}
            writer.write_sample(**sample)
            handed.append(sample)
    writer.close()
    torch.save(handed, out.with_suffix(".pt"))
    files = list(writer.local_shard_files)
    summary = cache.LocalCacheWriteSummary(0, 0, len(rows), writer.num_local_samples, len(files), files)
    cache.atomic_json_dump(summary.to_json(), str(rank_dir / "summary.json"))
    said = cache.load_local_cache_write_summary(str(rank_dir))
    shard_map, shards = cache.build_global_target_cache_shard_map([said])
    places = {"output_dir": str(out), "shard_map": shard_map}
    cache.rename_local_target_cache_shards(rank_dir=str(rank_dir), summary=said, **places)
    n_samples = cache.finalize_target_cache_index(summaries=[said], **places)
    manifest = cache.build_target_cache_manifest(
        num_samples=n_samples,
        shards=shards,
        target_layer_ids=layer_ids,
        hidden_size=extract.get_target_hidden_size(model),
        extra_fields={"target_model_name_or_path": str(model_folder), "chat_template": "", "max_length": 512},
    )
    cache.write_target_cache_manifest(output_dir=str(out), manifest=manifest)
    cache.cleanup_target_cache_tmp_dir(str(out))


if __name__ == "__main__":
    main()
