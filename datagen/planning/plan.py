"""What a run will cost, beforehand: samples, tokens, bytes by tensor, files, parts; and whether it fits.

The prediction uses the same units and the same layout arithmetic as the run, so it is within 1% of what the
run then writes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from datagen.config import PlanSettings, RunConfig
from datagen.errors import ConfigError, SpaceError
from datagen.planning.audit import audit_name, audit_schema, audit_unit
from datagen.planning.sizes import SampleSize, Sizes, compressed_ratio, part_sizes
from datagen.planning.units import make_units
from datagen.prompts.prompt import Prompt
from datagen.store.door import Door
from schemas.problem import Problem
from schemas.schema import Schema
from schemas.target import Target, WeightsDigest

PART_FILES = 3
"""`part.json`, `samples.parquet`, the group's `zarr.json`; every array adds its chunk and its `zarr.json`."""
DATASET_FILES = 3
"""`dataset.json`, the schema, `latest`."""
RUN_FILES = 3
"""`start.json`, `checks.json` and `end.json`."""
CALIBRATION_FILES = 1
"""`calibration.json` of the audit set."""
SPARE_BYTES = 64 << 20
TEXT_BYTES_A_TOKEN = 5
"""Of an answer's text, in a guess before there is one."""
ANSWER_RECORD_BYTES = 64
"""How an answer ended and how long it is, as its sample keeps it."""
UNKNOWN_DIGEST = "0" * 64


@dataclass(frozen=True)
class Prediction:
    """What will be written: the dataset, and beside it its audit set."""

    n_samples: int
    n_tokens: int
    n_parts: int
    n_files: int
    sizes: Sizes
    audit_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.sizes.total + self.audit_bytes


def predict(
    config: RunConfig,
    schema: Schema,
    prompts: Sequence[Prompt],
    n_workers: int = 1,
    *,
    at_most: bool = False,
    audited: Sequence[str] | None = None,
) -> Prediction:
    """Return what making `prompts` will write; where the target answers, as expected, or at most.

    `audited` are the tensors of the audit set, every boundary by default.
    """
    units = make_units(prompts, schema.token_bytes, config.parts, n_workers)
    ratio = compressed_ratio([prompt.text for prompt in prompts if prompt.text])
    parts = [[_sample_size(prompt, ratio, at_most) for prompt in unit.prompts] for unit in units]
    audit = audit_schema(schema.target, config.tensors.dtype, audited)
    return _prediction(config, schema, parts, audit, _audit_bytes(config, audit, prompts, ratio))


def predict_assumed(config: RunConfig, schema: Schema, audited: Sequence[str] | None = None) -> Prediction:
    """Return what `plan.samples` samples of `plan.tokens_per_sample` tokens will write; no prompt is read."""
    n_samples, mean = config.plan.samples or 0, config.plan.tokens_per_sample or 0.0
    sample = SampleSize(n_tokens=round(mean), name_bytes=48, text_bytes=2.0 * mean)
    a_part = max(
        1, min(config.parts.max_samples, config.parts.max_bytes // (schema.token_bytes * sample.n_tokens))
    )
    full, rest = divmod(n_samples, a_part)
    parts = [[sample] * a_part] * full + ([[sample] * rest] if rest else [])
    audit_tokens = min(config.audit.max_tokens, sample.n_tokens)
    audit = audit_schema(schema.target, config.tensors.dtype, audited)
    audit_part = [[SampleSize(audit_tokens, 48, 2.0 * audit_tokens)] * config.audit.samples]
    audit_bytes = part_sizes(audit, audit_part).total if config.audit.samples else 0
    return _prediction(config, schema, parts, audit, audit_bytes)


def _prediction(
    config: RunConfig,
    schema: Schema,
    parts: Sequence[Sequence[SampleSize]],
    audit: Schema,
    audit_bytes: int,
) -> Prediction:
    commits = -(-len(parts) // config.parts.commit_every_parts)
    n_files = _n_files(schema, len(parts), commits) + (RUN_FILES if parts else 0)
    if audit_bytes:
        n_files += _n_files(audit, 1, 1) + CALIBRATION_FILES
    return Prediction(
        n_samples=sum(len(part) for part in parts),
        n_tokens=sum(sample.n_tokens for part in parts for sample in part),
        n_parts=len(parts),
        n_files=n_files,
        sizes=part_sizes(schema, parts),
        audit_bytes=audit_bytes,
    )


def _n_files(schema: Schema, n_parts: int, n_commits: int) -> int:
    """Return the files of a new dataset; each commit adds an index and a version."""
    arrays = len(schema.tensors) + len(schema.token_columns) + 1
    return DATASET_FILES + n_parts * (PART_FILES + 2 * arrays) + 2 * n_commits if n_parts else 0


def _sample_size(prompt: Prompt, ratio: float, at_most: bool = False) -> SampleSize:
    names = len(prompt.source) + len(prompt.conversation_id) + 8
    n_tokens = prompt.n_most if at_most else prompt.n_planned
    n_text = len((prompt.text or "").encode())
    if prompt.ask is not None:
        n_answers = 1 + len(prompt.ask.following)
        n_text += n_answers * ANSWER_RECORD_BYTES
        if prompt.text is not None:
            n_text += TEXT_BYTES_A_TOKEN * (n_tokens - len(prompt.input_ids))
    return SampleSize(n_tokens, names, ratio * n_text)


def _audit_bytes(config: RunConfig, audit: Schema, prompts: Sequence[Prompt], ratio: float) -> int:
    if not config.audit.samples:
        return 0
    unit = audit_unit(prompts, config.audit.samples, config.audit.max_tokens, frozenset())
    part = [[_sample_size(replace(prompt, ask=None), ratio) for prompt in unit.prompts]]
    return part_sizes(audit, part).total if unit.prompts else 0


def space_problems(prediction: Prediction, door: Door) -> list[Problem]:
    """Return the problem of a disk that is too small; none where the place has no such number (a bucket)."""
    free = door.free_bytes()
    need = prediction.total_bytes + SPARE_BYTES
    if free is None or free >= need:
        return []
    return [
        Problem(
            where=door.url,
            kind="space",
            message=f"expected {need:,} free bytes, got {free:,}: {need - free:,} too few",
            repair="free space, write elsewhere, or plan fewer prompts or tensors",
        )
    ]


def room_problems(config: RunConfig, prediction: Prediction, door: Door) -> list[Problem]:
    """Return why the run could not write what is predicted: rights, a place that is no folder, space."""
    folders = [config.output.dataset]
    if config.audit.samples:
        folders.append(audit_name(config.output.dataset))
    # Both folders usually fail at the same one above them: told once.
    rights = dict.fromkeys(problem for folder in folders for problem in door.write_problems(folder))
    return [*rights, *space_problems(prediction, door)]


def check_room(config: RunConfig, prediction: Prediction, door: Door) -> None:
    """Raise `SpaceError` when what is to be written cannot be, or does not fit."""
    problems = room_problems(config, prediction, door)
    if problems:
        raise SpaceError("the dataset cannot be written", problems)


def target_of_config(file: Path) -> Target:
    """Return a target that has the shape in a model's `config.json`; only its shape is known.

    Raises `ConfigError` naming what is missing there.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: expected a model's config.json, got: {error}") from error
    text = content.get("text_config", content)
    fields = ("num_hidden_layers", "hidden_size", "vocab_size")
    problems = [
        Problem(
            where=f"{file}: {name}", kind="config", message=f"expected a positive int, got {text.get(name)!r}"
        )
        for name in fields
        if not isinstance(text.get(name), int) or text[name] < 1
    ]
    if problems:
        raise ConfigError("the model's shape is not in its config.json", problems)
    return Target(
        model_id=str(content.get("_name_or_path") or file),
        revision=None,
        model_type=str(content.get("model_type", "unknown")),
        architecture=str((content.get("architectures") or ["unknown"])[0]),
        n_layers=text["num_hidden_layers"],
        hidden_size=text["hidden_size"],
        vocab_size=text["vocab_size"],
        weights=WeightsDigest(method="synthetic", sha256=UNKNOWN_DIGEST),
        quantisation=None,
        tokenizer_sha256=UNKNOWN_DIGEST,
        chat_template_sha256=None,
    )


def assumed(plan: PlanSettings) -> bool:
    """Say whether the plan goes by given numbers instead of prompts."""
    return plan.samples is not None
