"""The audit set: a few short samples with *every* boundary, captured by the same engine before anything else.

Where the engine cannot give every one (`audit_names`), with those that it can. It is kept as the companion
dataset `<dataset>.audit`. Later questions (which layer is this? what would an off-by-one feed score? is the
new engine version the same?) need no second run of the target. It calibrates the run's norm check,
and proves the engine's `final`: `argmax(lm_head(norm(final)))` against its own choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from datagen.checks import Audited, Calibration, NormProfile, PrefixRows
from datagen.checks.prefix import PREFIX_ROWS
from datagen.checks.profile import behind_first
from datagen.planning.audit_names import lacking_of
from datagen.planning.units import Unit
from datagen.prompts.prompt import Prompt
from datagen.store.dataset import Snapshot
from schemas.boundary import EMBED, FINAL, FINAL_NORMED, all_names
from schemas.calibration import CalibrationRecord, TensorAgreement
from schemas.sample import prompt_id, sample_id
from schemas.schema import INPUT_IDS, LOSS_MASK, TARGET_ARGMAX, DType, Schema
from schemas.target import Target

MIN_AGREEMENT = 0.98
"""Exact top-1 ties are 2.7% of SmolLM2's positions in bf16, yet the head on the same states breaks them the
same way; taking the layer before `final` gave 56%, norming twice 32%."""
AUDIT_MODE: dict[str, object] = {"mode": "audit"}


def audit_name(dataset: str) -> str:
    """Return the companion's name.

    >>> audit_name("demo")
    'demo.audit'
    """
    return f"{dataset}.audit"


def audit_schema(target: Target, dtype: DType, names: Sequence[str] | None = None) -> Schema:
    """Return the schema of an audit set: every boundary, or `names`, and the target's own next tokens."""
    every = all_names(target.n_layers)
    return Schema.declare(
        target, every if names is None else names, dtype, (INPUT_IDS, LOSS_MASK, TARGET_ARGMAX)
    )


def audit_unit(prompts: Sequence[Prompt], samples: int, max_tokens: int, seen: frozenset[str]) -> Unit:
    """Return the audit samples not yet `seen`: of the conversations with the lowest hashes, their beginnings.

    A beginning without a trained token is passed over, unless there is none with one.
    """
    cut = [_beginning(prompt, max_tokens) for prompt in sorted(prompts, key=lambda prompt: prompt.sample_id)]
    useful = [prompt for prompt in cut if prompt.loss_mask.any()] or cut
    chosen: dict[str, Prompt] = {}
    for prompt in useful:
        if len(chosen) == samples:
            break
        chosen.setdefault(prompt.sample_id, prompt)
    return Unit("audit", tuple(prompt for prompt in chosen.values() if prompt.prompt_id not in seen))


def _beginning(prompt: Prompt, max_tokens: int) -> Prompt:
    ids, mask = prompt.input_ids[:max_tokens], prompt.loss_mask[:max_tokens]
    tokens = ids.tolist()
    return replace(
        prompt,
        input_ids=ids,
        loss_mask=mask,
        sample_id=sample_id(tokens),
        prompt_id=prompt_id(tokens, AUDIT_MODE),
    )


@dataclass(frozen=True)
class AuditReading:
    """What the audit set says.

    `agreement` is the share of positions where the head on the stored `final` chooses as the engine did.
    `on_policy` is the share of trained positions whose stored token the target itself would have chosen.
    `lacking` are the tensors of the target that it has not.
    """

    n_samples: int
    n_tokens: int
    profiles: Mapping[str, NormProfile]
    on_policy: float | None
    on_policy_positions: int
    lacking: tuple[str, ...] = ()


def read_audit(snapshot: Snapshot) -> AuditReading:
    """Read an audit set: its norm profiles and the on-policy rate."""
    norms: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float32]]]] = {}
    chosen, asked = 0, 0
    for sample_name in snapshot.sample_ids:
        sample = snapshot.read(sample_name, names=())
        for name, values in sample.norms.items():
            norms.setdefault(name, []).append(values)
        ids, mask = sample.tokens["input_ids"], sample.tokens["loss_mask"]
        argmax = sample.tokens["target_argmax"]
        trained = mask[1:] == 1
        asked += int(trained.sum())
        chosen += int((argmax[:-1][trained] == ids[1:][trained]).sum())
    return AuditReading(
        n_samples=len(snapshot),
        n_tokens=snapshot.version.n_tokens,
        profiles={name: NormProfile.of(behind_first(values)) for name, values in norms.items()},
        on_policy=chosen / asked if asked else None,
        on_policy_positions=asked,
        lacking=lacking_of(snapshot.schema),
    )


def in_words(record: CalibrationRecord) -> str:
    """Return what an audit set was held against, and how far its tensors are from that."""
    if not record.tensors:
        return "held against no witness"
    outliers = sum(tensor.outliers for tensor in record.tensors)
    beyond = f"{outliers} of {record.n_tokens * len(record.tensors):,} rows beyond the limit"
    head = "" if record.positions else "; the head was not asked: there is no final"
    return f"against {record.witness}: {errors_in_words(record.tensors)}, {beyond}{head}"


def errors_in_words(tensors: Sequence[TensorAgreement]) -> str:
    """Return the largest errors by token of some tensors, at least one, in words."""
    worst = max(tensors, key=lambda tensor: tensor.median)
    near = (
        f"; {worst.nearest} is nearest at {worst.distance:.2%}"
        if worst.nearest and worst.distance is not None
        else ""
    )
    return (
        f"error by token at most {worst.median:.2%} median ({worst.name}{near}), "
        f"{max(tensor.p99 for tensor in tensors):.2%} p99"
    )


def read_calibration(snapshot: Snapshot, reading: AuditReading) -> Calibration:
    """Return what a run's workers need of an audit set: the first rows of each sample, and its ends."""
    schema = snapshot.schema
    beginnings = (
        (sample.tokens["input_ids"], sample.tensors)
        for name in snapshot.sample_ids
        for sample in [
            snapshot.read(name, tokens=slice(0, min(PREFIX_ROWS, snapshot.location(name).n_tokens)))
        ]
    )
    prefix = PrefixRows.of(schema.tensors[0].dtype, schema.names, beginnings)
    ends = [name for name in (EMBED, FINAL, FINAL_NORMED) if name in schema.names]
    samples = (snapshot.read(name, names=ends) for name in snapshot.sample_ids)
    audited = tuple(
        Audited(
            one.tokens["input_ids"].astype(np.int32), one.tokens["loss_mask"].astype(np.uint8), one.tensors
        )
        for one in samples
    )
    return Calibration(reading.profiles, prefix, audited)
