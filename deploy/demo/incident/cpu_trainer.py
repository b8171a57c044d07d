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


def train(arguments: Sequence[str]) -> None:
    """Run the trainer with the words of its own command line."""
    answer_for_cpu()
    config: Any = importlib.import_module("speculators.train.config")
    command: Any = importlib.import_module("speculators.train.cli")
    command.main(config.TrainConfig.resolve(list(arguments)))


if __name__ == "__main__":
    train(sys.argv[1:])
