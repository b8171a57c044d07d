"""`strata plan`: what a run will cost, before it costs anything."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from datagen.arguments import read_config_arguments
from datagen.config import RunConfig
from datagen.driver.driver import Job, open_job
from datagen.driver.probe import probe
from datagen.engines.opening import giving
from datagen.errors import ConfigError
from datagen.planning.audit_names import NO_AUDIT, AuditNames, audit_names
from datagen.planning.plan import (
    Prediction,
    assumed,
    predict,
    predict_assumed,
    room_problems,
    space_problems,
    target_of_config,
)
from datagen.printing import PlainConsole
from datagen.store.opening import open_door
from schemas.figures import human_bytes, human_seconds
from schemas.problem import Problem
from schemas.schema import Schema

PROG = "strata plan"
TABLE_WIDTH = 100


@dataclass(frozen=True)
class Answer:
    """The plan, and what it rests on."""

    schema: Schema
    prediction: Prediction
    job: Job | None
    tokens_per_second: float | None
    """`None` where nothing is to be made, so that nothing was measured."""
    rate_from: str
    problems: tuple[Problem, ...]
    audit: str
    """What the audit set will have, in words."""
    most: Prediction | None = None
    """Where the target answers: as much as may come at most, and what the space is held against."""

    @property
    def seconds(self) -> float:
        return self.prediction.n_tokens / self.tokens_per_second if self.tokens_per_second else 0.0


def command(arguments: Sequence[str]) -> int:
    """Say what a run will cost: samples, tokens, bytes by tensor, files, parts and time."""
    given = read_config_arguments(PROG, command.__doc__ or "", arguments)
    answer = make_answer(given.config)
    if given.as_json:
        print(json.dumps(as_data(answer)))  # noqa: T201
    else:
        _print(answer, PlainConsole(TABLE_WIDTH))
    return int(bool(answer.problems))


def make_answer(config: RunConfig) -> Answer:
    """Return the plan; a rate that is not given is measured by a short probe on the real engine."""
    return _assumed_answer(config) if assumed(config.plan) else _read_answer(config)


def _read_answer(config: RunConfig) -> Answer:
    job = open_job(config)
    schema, door = job.prepared.schema, job.prepared.door
    workers = config.workers.count if config.workers.count != "auto" else 1
    audited = job.prepared.audited
    prediction = predict(config, schema, job.todo, workers, audited=audited.names)
    most = None
    if config.generate:
        most = predict(config, schema, job.todo, workers, at_most=True, audited=audited.names)
    problems = tuple([] if job.nothing_to_do else room_problems(config, most or prediction, door))
    rate, rate_from = config.plan.tokens_per_second, "given"
    if rate is None and job.todo:
        rate, rate_from = probe(job), "measured"
    return Answer(schema, prediction, job, rate, rate_from, problems, _audit_said(config, audited), most)


def _assumed_answer(config: RunConfig) -> Answer:
    """Answer by given numbers alone: neither the model nor the prompts nor a bucket is asked for anything.

    Raises `ConfigError` where the engine cannot give the tensors of such a model.
    """
    plan = config.plan
    lacking = {
        "model_config_file": "expected a model's config.json to take the target's shape from, got none",
        "tokens_per_second": "expected a rate where samples are given, got none",
    }
    problems = [
        Problem(where=f"plan.{name}", kind="plan", message=message)
        for name, message in lacking.items()
        if getattr(plan, name) is None
    ]
    if plan.model_config_file is None or problems:
        raise ConfigError("the plan goes by given samples, and lacks what else it needs", problems)
    file = Path(plan.model_config_file)
    target = target_of_config(file)
    schema = Schema.declare(target, config.tensors.names, config.tensors.dtype)
    asked = giving(config.engine, file)
    if refused := asked(schema, schema):
        raise ConfigError("the engine cannot give the tensors of the run", refused)
    audited = audit_names(asked, schema)
    prediction = predict_assumed(config, schema, audited.names)
    space = tuple(space_problems(prediction, open_door(config.output.root)))
    said = _audit_said(config, audited)
    return Answer(schema, prediction, None, plan.tokens_per_second, "given", space, said)


def _audit_said(config: RunConfig, audited: AuditNames) -> str:
    samples = config.audit.samples
    return f"{samples} samples with {audited.said}" if samples else NO_AUDIT


def as_data(answer: Answer) -> dict[str, object]:
    """Return the plan as JSON types."""
    stats = answer.job.prepared.stats if answer.job else None
    most = answer.most
    return {
        "target": answer.schema.target.model_dump(mode="json"),
        "schema_fingerprint": answer.schema.fingerprint,
        "prompts_read": stats.read if stats else None,
        "duplicates": stats.duplicates if stats else None,
        "truncated": stats.truncated if stats else None,
        "quarantined": dict(stats.quarantined) if stats else None,
        "already_made": answer.job.n_made_before if answer.job else None,
        "samples": answer.prediction.n_samples,
        "tokens": answer.prediction.n_tokens,
        "parts": answer.prediction.n_parts,
        "files": answer.prediction.n_files,
        "bytes": asdict(answer.prediction.sizes),
        "bytes_of_dataset": answer.prediction.sizes.total,
        "audit_set": answer.audit,
        "bytes_of_audit_set": answer.prediction.audit_bytes,
        "bytes_total": answer.prediction.total_bytes,
        "at_most": {"tokens": most.n_tokens, "bytes_total": most.total_bytes} if most else None,
        "tokens_per_second": answer.tokens_per_second,
        "rate_from": answer.rate_from,
        "seconds": answer.seconds,
        "problems": [problem.model_dump(mode="json") for problem in answer.problems],
    }


def _print(answer: Answer, console: Console) -> None:
    target, prediction = answer.schema.target, answer.prediction
    console.print(
        f"target      {target.model_id}: {target.model_type}, L={target.n_layers}, H={target.hidden_size}"
    )
    if answer.job is not None:
        stats = answer.job.prepared.stats
        console.print(
            f"prompts     {stats.read:,} read, {stats.duplicates:,} duplicates, "
            f"{stats.n_quarantined:,} quarantined, {stats.truncated:,} truncated, "
            f"{answer.job.n_made_before:,} made before"
        )
        for reason, count in sorted(stats.quarantined.items()):
            console.print(f"            {count:,} {reason}")
    console.print(f"samples     {prediction.n_samples:,}, {prediction.n_tokens:,} tokens")
    if answer.most is not None:
        console.print(
            f"assumed     an answer's length (plan.answer_tokens, else half of generate.max_tokens): "
            f"at most {answer.most.n_tokens:,} tokens, {human_bytes(answer.most.total_bytes)}"
        )
    console.print(f"parts       {prediction.n_parts:,}, {prediction.n_files:,} files")
    console.print(f"audit set   {answer.audit}", markup=False)
    console.print(_bytes_table(answer))
    rate = "nothing is to be made"
    if answer.tokens_per_second is not None:
        rate = f"at {answer.tokens_per_second:,.0f} tokens/s ({answer.rate_from})"
    console.print(f"time        {human_seconds(answer.seconds)}: {rate}")
    for problem in answer.problems:
        console.print(f"problem     {problem}")


def _bytes_table(answer: Answer) -> Table:
    prediction, sizes = answer.prediction, answer.prediction.sizes
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for title in ("bytes", "boundary", "norm", "dtype", "width", "a token", "in all"):
        table.add_column(title, justify="left" if title in ("bytes", "norm", "dtype") else "right")
    for spec in answer.schema.tensors:
        table.add_row(
            spec.name,
            str(spec.boundary),
            spec.norm,
            spec.dtype,
            str(spec.width),
            f"{spec.row_bytes:,}",
            f"{sizes.tensors[spec.name]:,}",
        )
    beside = (
        ("token columns", sizes.token_columns),
        ("norms, checksums", sizes.norms_and_checksums),
        ("text", sizes.text),
        ("records", sizes.records),
        ("index", sizes.index),
        ("audit set", prediction.audit_bytes),
    )
    for name, count in beside:
        table.add_row(name, "", "", "", "", "", f"{count:,}")
    total = prediction.total_bytes
    table.add_row(
        "total", "", "", "", "", f"{answer.schema.token_bytes:,}", f"{total:,} ({human_bytes(total)})"
    )
    return table
