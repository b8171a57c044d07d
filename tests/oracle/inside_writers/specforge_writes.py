"""SpecForge 0.2.0's offline pipeline up to the record that it keeps, run on a CPU; started by `writers.py`.

Its own: the rendering and masks of conversations, the sampler and the padding collator, the plan of layers,
the capture of a batch and its rows, and the algorithm's layout, which names what a file holds. In place of
SGLang, which needs CUDA, transformers answers `_forward_extend`; the command that calls these in turn and
`torch.save`s each record (`scripts/prepare_hidden_states.py`) is in no release, and its loop is here.

Usage: MODEL CONVERSATIONS.jsonl OUT, of which OUT gets a folder a strategy, and one of eagle3, compressed.
"""

import gzip
import importlib.abc
import importlib.machinery
import io
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from datasets import load_dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

BATCH, LONGEST, GROUP = 3, 160, 2000
DSPARK_LAYERS = [0, 3, 4]


class Stand:
    """In place of a class of SGLang's: what it is given is what it has."""

    def __init__(self, *_: object, **given: object) -> None:
        self.__dict__.update(given)
        self.prefix_indices: list[int] = []


class _Stands(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers every import of SGLang's, and of the two modules that subclass it."""

    NAMES = ("sglang", "specforge.offline_capture.sglang_backend.model_runner")

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        is_here = name.split(".")[0] == self.NAMES[0] or name in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_here else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = self.stand  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""

    @staticmethod
    def stand(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Stand, torch.nn.Module) if name == "LogitsProcessor" else (Stand,), {})


sys.meta_path.insert(0, _Stands())

application: Any = import_module("specforge.application")
backend_package: Any = import_module("specforge.offline_capture.sglang_backend")
capturing: Any = import_module("specforge.offline_capture")
collating: Any = import_module("specforge.data.utils")
configuring: Any = import_module("specforge.config")
distributed: Any = import_module("specforge.distributed")
preprocessing: Any = import_module("specforge.data.preprocessing")


class OverTransformers(backend_package.OfflineSGLangCaptureBackend):  # type: ignore[misc]
    """Its backend, over a model of transformers: layer i's output is state i + 1 of those that it lists."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layers: list[int] = []

    def set_capture_layers(self, layer_ids: Any, *, capture_method: str) -> None:
        self.layers = list(layer_ids)

    def _forward_extend(self, reqs: list[Any]) -> Any:
        aux, last = [], []
        for req in reqs:
            states = self.model(torch.tensor([req.origin_input_ids]), output_hidden_states=True).hidden_states
            aux.append(torch.cat([states[layer + 1][0] for layer in self.layers], dim=-1))
            last.append(states[-1][0])
        return SimpleNamespace(aux_hidden_states=torch.cat(aux), last_hidden_states=torch.cat(last))

    def _clear_pools(self) -> None:
        """There are none."""


def draft(out: Path, strategy: str) -> str | None:
    """Return the draft's config where the strategy asks for one: DSpark's says which layers are captured."""
    if strategy == "eagle3":
        return None
    config = {
        "architectures": ["DSparkDraftModel"],
        "model_type": "qwen3",
        "dflash_config": {"target_layer_ids": DSPARK_LAYERS},
    }
    file = out.with_suffix(".json")
    file.write_text(json.dumps(config), encoding="utf-8")
    return str(file)


def write(model: Path, data: Path, out: Path, strategy: str, backend: OverTransformers, suffix: str) -> None:
    config = configuring.Config(
        model={"target_model_path": str(model), "draft_model_config": draft(out, strategy)},
        data={"hidden_states_path": str(out), "max_length": LONGEST},
        training={"strategy": strategy},
    )
    plan = application.resolve_offline_capture(config, target_config=AutoConfig.from_pretrained(model))
    dataset = preprocessing.build_eagle3_dataset(
        load_dataset("json", data_files=str(data))["train"],
        AutoTokenizer.from_pretrained(model),
        "qwen",
        LONGEST,
        num_proc=1,
        loss_mask_filter=plan.loss_mask_filter,
    )
    capture = capturing.OfflineSGLangCapture(backend)
    capture.set_capture_layers(list(plan.capture_layers), capture_method=plan.capture_method)
    index = 0
    group = distributed.get_dp_group()
    for batch in collating.prepare_dp_dataloaders(dataset, BATCH, num_workers=0, process_group=group):
        names = ("input_ids", "attention_mask", "loss_mask")
        made = capture.capture(**{name: batch[name] for name in names})
        for row in range(len(made.input_ids)):
            sources = {
                "input_ids": made.input_ids[row].clone(),
                "loss_mask": made.loss_mask[row].clone(),
                "aux_hidden_states": made.hidden_states[row].clone().unsqueeze(0),
                "last_hidden_states": made.last_hidden_states[row].clone().unsqueeze(0),
            }
            first = index // GROUP * GROUP
            file = out / f"rows_{first}-{first + GROUP}" / f"data_{index}{suffix}"
            file.parent.mkdir(parents=True, exist_ok=True)
            packed = io.BytesIO()
            torch.save(plan.layout.materialize(sources), packed)
            record = packed.getvalue()
            file.write_bytes(gzip.compress(record, 6) if suffix.endswith(".gz") else record)
            index += 1


def main() -> None:
    model, data, out = map(Path, sys.argv[1:])
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": "0", "SPECFORGE_DEVICE": "cpu"}
    distributed.init_distributed()
    backend = OverTransformers(AutoModelForCausalLM.from_pretrained(model, dtype="auto").eval())
    for name, strategy, suffix in (
        ("eagle3", "eagle3", ".ckpt"),
        ("compressed", "eagle3", ".ckpt.gz"),
        ("dspark", "dspark", ".ckpt"),
    ):
        write(model, data, out / name, strategy, backend, suffix)


if __name__ == "__main__":
    main()
