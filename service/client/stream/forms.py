"""Consumers' own formats: which keys a consumer's code reads, and how its data side lays samples out.

A format is either what the consumer's model is called with, made as its own collate makes it, its own shift
included where the collate is what shifts; or the samples as its own dataset hands them to that collate.
`KNOWN` is the table; the ways of laying out are functions of the keys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from schemas.consumers.versions import in_range
from schemas.problem import Problem
from schemas.wiring import Wiring
from service.client.asked import consumer_release
from service.client.errors import StreamError
from service.client.options import Layout
from service.client.plan import Budget
from service.client.stream.batch import PADDING, padded
from service.client.stream.fetched import Fetched
from service.client.stream.memory import Memory


@dataclass(frozen=True)
class Keys:
    """Under which keys a consumer reads the draft's input (`fc`, joined on the last axis) and the target."""

    fc: str
    target: str


@dataclass(frozen=True)
class Form:
    """One consumer's format at a range of versions."""

    consumer: str
    versions: str
    source: str
    keys: Keys
    layout: Layout
    collate: Callable[[Keys, Fetched, Wiring, int, Memory], dict[str, Any]]
    samples: Callable[[Keys, Fetched, Wiring], list[dict[str, Any]]]
    needs_tokens: bool
    """Whether its row is as long as the budget of tokens, which must then be given."""


def target_of(fetched: Fetched, wiring: Wiring) -> torch.Tensor:
    """Return the target's rows `[sum t, H]`."""
    if wiring.target is None:
        raise StreamError(f"{wiring.title} has no target")
    return fetched.tensors[wiring.target.tensor]


def joined(fetched: Fetched, wiring: Wiring, first: int, end: int) -> torch.Tensor:
    """Return rows of the draft's input `[t, k * H]`: the wiring's tensors side by side, in its order."""
    return torch.cat([fetched.tensors[name][first:end] for name in wiring.fc], dim=-1)


def packed_row(keys: Keys, fetched: Fetched, wiring: Wiring, length: int, memory: Memory) -> dict[str, Any]:
    """Return one row of `length` tokens, each sample shifted and one token shorter, zeros after the last.

    A sample's rows pair input state i with token, target and mask i+1, at position i+1.
    """
    target = target_of(fetched, wiring)
    width = target.shape[-1]
    states = memory.empty((1, length, len(wiring.fc) * width), target.dtype)
    targets = memory.empty((1, length, width), target.dtype)
    ids, mask, positions = (torch.zeros((1, length), dtype=torch.int64) for _ in range(3))
    documents = torch.full((1, length), PADDING, dtype=torch.int64)
    at = 0
    for number, (first, end) in enumerate(pairwise(fetched.offsets)):
        row = slice(at, at + end - first - 1)
        for slot, name in enumerate(wiring.fc):
            states[0, row, slot * width : (slot + 1) * width] = fetched.tensors[name][first : end - 1]
        targets[0, row] = target[first + 1 : end]
        ids[0, row] = fetched.input_ids[first + 1 : end]
        mask[0, row] = fetched.loss_mask[first + 1 : end].long()
        positions[0, row] = torch.arange(1, end - first)
        documents[0, row] = number
        at = row.stop
    states[0, at:] = 0
    targets[0, at:] = 0
    return {
        keys.fc: states,
        "input_ids": ids,
        keys.target: targets,
        "loss_mask": mask,
        "position_ids": positions,
        "document_ids": documents,
        "error_records": 0,
    }


def row_samples(keys: Keys, fetched: Fetched, wiring: Wiring) -> list[dict[str, Any]]:
    """Return each sample unshifted, without a batch axis, as the dataset behind `packed_row` hands it out."""
    target = target_of(fetched, wiring)
    return [
        {
            keys.fc: joined(fetched, wiring, first, end),
            "input_ids": fetched.input_ids[first:end],
            keys.target: target[first:end],
            "loss_mask": fetched.loss_mask[first:end].long(),
            "lengths": torch.tensor([end - first]),
            "position_ids": torch.arange(end - first),
        }
        for first, end in pairwise(fetched.offsets)
    ]


def padded_rows(keys: Keys, fetched: Fetched, wiring: Wiring, _: int, memory: Memory) -> dict[str, Any]:
    """Return a row a sample, unshifted, zeros after its end; its last token carries no loss."""
    mask = fetched.loss_mask.long()
    mask[torch.tensor(fetched.offsets[1:]) - 1] = 0
    states = joined(fetched, wiring, 0, fetched.offsets[-1])
    rows = {
        "input_ids": fetched.input_ids,
        "attention_mask": torch.ones_like(mask),
        "loss_mask": mask,
        keys.fc: states,
        keys.target: target_of(fetched, wiring),
    }
    return {name: padded(values, fetched.offsets, memory) for name, values in rows.items()}


def padded_samples(keys: Keys, fetched: Fetched, wiring: Wiring) -> list[dict[str, Any]]:
    """Return each sample as a batch of one, as the dataset behind `padded_rows` hands it out."""
    target = target_of(fetched, wiring)
    samples = []
    for first, end in pairwise(fetched.offsets):
        mask = fetched.loss_mask[None, first:end].long()
        mask[0, -1] = 0
        samples.append(
            {
                "attention_mask": torch.ones_like(mask),
                "loss_mask": mask,
                keys.target: target[None, first:end],
                keys.fc: joined(fetched, wiring, first, end)[None],
                "input_ids": fetched.input_ids[None, first:end],
            }
        )
    return samples


KNOWN: tuple[Form, ...] = (
    Form(
        consumer="speculators",
        versions=">=0.9,<=0.9.0",
        source="ArrowDataset and CollateFn of train/data.py, shift_batch of models/eagle3/data.py, 0.9.0",
        keys=Keys(fc="hidden_states", target="verifier_last_hidden_states"),
        layout="packed",
        collate=packed_row,
        samples=row_samples,
        needs_tokens=True,
    ),
    Form(
        consumer="specforge",
        versions=">=0.2,<=0.2.0",
        source="OfflineEagle3Dataset of data/preprocessing.py, collator of data/utils.py, 0.2.0",
        keys=Keys(fc="hidden_state", target="target"),
        layout="padded",
        collate=padded_rows,
        samples=padded_samples,
        needs_tokens=False,
    ),
)


def form_of(wiring: Wiring, budget: Budget, layout: Layout | None) -> Form:
    """Return the format of a wiring's consumer.

    Raises `StreamError` when it is not known, or asks for other options, with what to do.
    """
    release = consumer_release(wiring)
    known = ", ".join(f"{form.consumer} ({form.versions})" for form in KNOWN)
    for form in KNOWN:
        if form.consumer == wiring.consumer and release is not None and in_range(release, form.versions):
            problems = [*_departures(form, wiring, budget, layout)]
            if problems:
                raise StreamError(f"the options do not go with the format of {wiring.title}", problems)
            return form
    message = f"expected a consumer whose own format is known ({known}), got {wiring.title}"
    repair = 'say format="named", and hand each tensor where it belongs by its name'
    raise StreamError(
        "no such format", [Problem(where="format", kind="consumer", message=message, repair=repair)]
    )


def _departures(form: Form, wiring: Wiring, budget: Budget, layout: Layout | None) -> list[Problem]:
    problems = []
    if form.needs_tokens and budget.tokens is None:
        message = f"expected tokens_per_batch, since {wiring.title} takes one row of a fixed length, got none"
        repair = "give its total sequence length"
        problems.append(Problem(where="tokens_per_batch", kind="missing", message=message, repair=repair))
    if layout not in (None, form.layout):
        message = f"expected {form.layout}, as {wiring.title} takes it, got {layout}"
        problems.append(Problem(where="layout", kind="choice", message=message, repair="leave layout out"))
    if wiring.token_shift != "consumer":
        message = f"expected a wiring whose consumer shifts, as {wiring.title} does, got {wiring.token_shift}"
        repair = 'write token_shift="consumer"'
        problems.append(
            Problem(where="wiring.token_shift", kind="token_shift", message=message, repair=repair)
        )
    return problems
