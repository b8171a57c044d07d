"""speculators' own trainer on a machine without an accelerator: a script, in an environment of its own.

Release 0.9.0 takes an accelerator for granted in three places: where the model is put, what autocast is told,
and the clock of a step. They are answered here, and the trainer is left as it is.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import torch


def answer_for_cpu() -> None:
    """Answer in the accelerator's place, for whoever runs the trainer in this process."""
    trainer: Any = importlib.import_module("speculators.train.trainer")
    trainer.get_local_rank = lambda: "cpu"
    trainer.Trainer.device_type = property(lambda _: "cpu", lambda *_: None)
    accelerator: Any = torch.accelerator
    accelerator.synchronize = lambda *_: None


def answer_for_ranks() -> None:
    """Answer in the accelerators' place where several ranks set out, too: they meet over gloo."""
    distributed: Any = importlib.import_module("torch.distributed")
    setting_up: Any = importlib.import_module("speculators.train.distributed")
    accelerator: Any = torch.accelerator
    begin, set_up = distributed.init_process_group, setting_up.maybe_setup_distributed

    def begun(backend: str, **given: Any) -> None:
        given.pop("device_id", None)
        begin(backend, **given)

    def set_up_on_cpu(*given: Any, **named: Any) -> None:
        # Only here: asked elsewhere, torch would take the CPU for a device to copy to.
        asked = accelerator.current_accelerator
        accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
        try:
            set_up(*given, **named)
        finally:
            accelerator.current_accelerator = asked

    accelerator.set_device_index = lambda *_: None
    distributed.init_process_group = begun
    setting_up.maybe_setup_distributed = set_up_on_cpu


def train(arguments: Sequence[str]) -> None:
    """Run the trainer with the words of its own command line."""
    answer_for_cpu()
    config: Any = importlib.import_module("speculators.train.config")
    command: Any = importlib.import_module("speculators.train.cli")
    command.main(config.TrainConfig.resolve(list(arguments)))


if __name__ == "__main__":
    train(sys.argv[1:])
