"""Reads what a check compares, from files and a dataset; `schemas.judging` compares it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from datagen.errors import ConfigError
from datagen.wiring.cards import read_card
from datagen.wiring.draft_files import read_safetensors_names
from datagen.wiring.inputs import read_dataset, read_json, read_wiring, shape_of
from schemas.card import Card
from schemas.judging import Report, judge
from schemas.problem import Problem
from schemas.sides import Sides, side_problems
from schemas.trainer_wiring import trained_card

__all__ = ["Asked", "Report", "card_of", "check"]


@dataclass(frozen=True)
class Asked:
    """What a check is asked about; at least two of dataset, trainer (or wiring file), card and server.

    A card stands in for a trainer; beside one it says what that trainer is meant to take.
    """

    dataset: str | None = None
    trainer: str | None = None
    trainer_ids: tuple[int, ...] | None = None
    """Layer ids that the trainer is given, in its own numbers, in place of its default."""
    trainer_engine: str | None = None
    """What the trainer captures with (`sglang==0.5.23`), where that is not the release it comes with."""
    trainer_wiring: Path | None = None
    card: Path | None = None
    server: str | None = None
    server_wiring: Path | None = None
    draft_config: Path | None = None
    target_config: Path | None = None
    server_args: str | None = None
    raw: bool = False
    """Whether the trainer reads samples as they are stored: no export, and not the client, between them."""


def check(asked: Asked) -> Report:
    """Compare what is given.

    Raises `StrataError` when something that was named cannot be read, or too little was given to compare.
    """
    given = [each.name for each in fields(asked) if getattr(asked, each.name) not in (None, False, "")]
    if problems := side_problems(given, Sides().word):
        raise ConfigError("there is nothing to compare", problems)
    dataset = read_dataset(asked.dataset) if asked.dataset else None
    card = read_card(asked.card) if asked.card else None
    draft = read_json(asked.draft_config, "a draft's config.json") if asked.draft_config else None
    shape, target = shape_of(dataset, card, asked.target_config)
    tensors: Mapping[str, tuple[int, ...]] | None = None
    unread: Sequence[Problem] = ()
    if asked.draft_config is not None and asked.draft_config.is_dir():
        tensors, unread = read_safetensors_names(asked.draft_config)
    sides = Sides(
        dataset=dataset,
        trainer=asked.trainer,
        trainer_ids=asked.trainer_ids,
        trainer_engine=asked.trainer_engine,
        trainer_wiring=read_wiring(asked.trainer_wiring),
        card=card,
        server=asked.server,
        server_wiring=read_wiring(asked.server_wiring),
        draft_config=draft,
        draft_tensors=tensors,
        unread=unread,
        target=target,
        server_args=asked.server_args,
        raw=asked.raw,
    )
    return judge(sides, shape)


def card_of(report: Report) -> Card:
    """Return the card of what was compared: a trainer's wiring on a dataset, and the draft's contract.

    Raises `ConfigError` when there is no dataset or no trainer, or something was wrong with them.
    """
    card = trained_card(report)
    if card is None:
        got = f"{len(report.errors)} problems" if report.errors else "too little to write one of"
        raise ConfigError(f"expected a dataset and a trainer that mean the same for a card, got {got}")
    return card
