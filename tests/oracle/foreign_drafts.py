"""Drafts made, exported and run by their trainers' own model code, in a process of its own.

`python -m tests.oracle.foreign_drafts SYSTEM FOLDER` reads FOLDER/cases.json: a config by the name of each
case. Beside it, under each name, it leaves what that code exports, and in `run.safetensors` a batch and what
the model makes of it: `ids`, `states`, `positions`, `lengths`, and for each step `logits.N`.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.oracle.borrow import Inert
from tests.oracle.wheels import source

LENGTHS = (9, 5, 7)
N_STEPS = 3
ROOT = Path(__file__).resolve().parents[2]


class _Beside(ModuleType):
    """A module whose every name is inert."""

    __file__ = __file__

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()


def make(system: str, folder: Path, cases: Mapping[str, Mapping[str, Any]]) -> None:
    """Fill `folder` with these cases; raises CalledProcessError where the system's code fails."""
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    command = [sys.executable, "-m", "tests.oracle.foreign_drafts", system, str(folder)]
    # Its Python is run as it stands: compiling it would only take a minute more.
    subprocess.run(command, check=True, cwd=ROOT, env={"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"})


def _speculators() -> Callable[[Mapping[str, Any]], tuple[nn.Module, Any]]:
    sys.path.insert(0, str(source("speculators", "0.9.0").parent))
    for name in ("speculators.train.data", "loguru"):
        # What reads data and logs is beside the question, and asks for packages that are not there.
        sys.modules[name] = _Beside(name, "stands for what is not asked about")
    eagle3 = importlib.import_module("speculators.models.eagle3")

    def build(values: Mapping[str, Any]) -> tuple[nn.Module, Any]:
        config = eagle3.Eagle3SpeculatorConfig.from_dict(dict(values))
        config.transformer_layer_config._attn_implementation = "eager"
        return eagle3.Eagle3DraftModel(config), config.transformer_layer_config

    return build


def _specforge() -> Callable[[Mapping[str, Any]], tuple[nn.Module, Any]]:
    sys.path.insert(0, str(source("specforge", "0.2.0").parent))
    eagle = importlib.import_module("specforge.modeling.draft.llama3_eagle")
    transformers = importlib.import_module("transformers")

    def build(values: Mapping[str, Any]) -> tuple[nn.Module, Any]:
        config = transformers.LlamaConfig(**values)
        return eagle.LlamaForCausalLMEagle3(config, attention_backend="sdpa"), config

    return build


def _randomize(model: nn.Module, vocab_size: int, draft_size: int, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        scale = 0.3 if parameter.ndim == 2 else 1.0
        parameter.data = scale * torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            parameter.data *= 0.5
    if draft_size < vocab_size:
        ids = torch.randperm(vocab_size, generator=generator)[:draft_size].sort().values
        marks = torch.zeros(vocab_size, dtype=torch.bool)
        marks[ids] = True
        model.register_buffer("t2d", marks)
        model.register_buffer("d2t", ids - torch.arange(draft_size))


def _batch(vocab_size: int, width: int, generator: torch.Generator) -> dict[str, Tensor]:
    n_rows = sum(LENGTHS)
    return {
        "ids": torch.randint(0, vocab_size, (n_rows,), generator=generator),
        "states": torch.randn(n_rows, width, generator=generator),
        "lengths": torch.tensor(LENGTHS),
        "positions": torch.cat([torch.arange(1, length + 1) for length in LENGTHS]),
    }


def _run_speculators(model: Any, batch: Mapping[str, Tensor]) -> list[Tensor]:
    """One packed row; its forward returns no logits, so its lm_head is listened to."""
    logits: list[Tensor] = []
    model.lm_head.register_forward_hook(lambda _module, _given, made: logits.append(made[0]))
    documents = torch.cat([torch.full((length,), number) for number, length in enumerate(LENGTHS)])
    model(
        batch["states"][None],
        batch["ids"][None],
        documents[None],
        position_ids=batch["positions"][None],
        ttt_steps=N_STEPS,
    )
    return logits


def _run_specforge(model: Any, batch: Mapping[str, Tensor]) -> list[Tensor]:
    """One conversation at a time, unrolled as its `OnlineEagle3Model` does; positions are counted from 0."""
    steps: list[list[Tensor]] = [[] for _ in range(N_STEPS)]
    ids, states = (torch.split(batch[name], list(LENGTHS)) for name in ("ids", "states"))
    for some, seen in zip(ids, states, strict=True):
        n_rows = len(some)
        hidden = model.project_hidden_states(seen[None])
        everything = torch.ones(1, n_rows, dtype=torch.bool)
        mask = model.prepare_decoder_attention_mask(everything, hidden, 1, n_rows, 0)
        cache: list[list[Tensor]] = [[], []]
        for step in range(N_STEPS):
            shifted = torch.cat([some[step:], some.new_zeros(min(step, n_rows))])
            hidden = model.backbone(
                input_embeds=model.embed_input_ids(shifted[None]),
                hidden_states=hidden,
                cache_hidden=cache,
                attention_mask=mask,
                position_ids=torch.arange(n_rows)[None],
            )
            steps[step].append(model.compute_logits(hidden)[0])
    return [torch.cat(parts) for parts in steps]


def main(system: str, folder: Path) -> None:
    """Make, export and run every case."""
    build = {"speculators": _speculators, "specforge": _specforge}[system]()
    run = {"speculators": _run_speculators, "specforge": _run_specforge}[system]
    for number, (name, values) in enumerate(json.loads((folder / "cases.json").read_text()).items()):
        generator = torch.Generator().manual_seed(number)
        model, body = build(values)
        draft_size = values["draft_vocab_size"]
        _randomize(model, body.vocab_size, draft_size, generator)
        model.eval()
        batch = _batch(body.vocab_size, model.fc.in_features, generator)  # type: ignore[union-attr,arg-type]
        if system == "specforge":
            batch["positions"] = batch["positions"] - 1
        with torch.no_grad():
            logits = run(model, batch)
        model.save_pretrained(folder / name)  # type: ignore[operator]
        kept = {f"logits.{step}": one.contiguous() for step, one in enumerate(logits)}
        save_file({**batch, **kept}, folder / f"{name}.run.safetensors")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
