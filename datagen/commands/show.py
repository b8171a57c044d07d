"""`strata show`: what is in a dataset, in words or as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from datagen.engines.said import in_a_line
from datagen.planning.audit import AuditReading, in_words
from datagen.printing import PlainConsole
from datagen.show import DatasetView, SampleView, TensorLine, view_dataset, view_sample
from datagen.store.opening import open_door
from schemas.boundary import FINAL, FINAL_NORMED
from schemas.command import Parser
from schemas.figures import human_bytes, human_seconds
from schemas.final_norm import derivable
from schemas.records import RunEnd, RunStart, VersionRecord
from schemas.reference import parse_reference
from schemas.run_checks import RunChecks

PROG = "strata show"
TEXT_SHOWN = 600
TABLE_WIDTH = 116
FIGURES = ("median", "p99", "mean", "deviation", "first", "last")


def command(arguments: Sequence[str]) -> int:
    """Show what is in a dataset: schema, versions, runs, quarantine, and the norms of every tensor."""
    parser = Parser(prog=PROG, description=command.__doc__)
    parser.add_argument("dataset", metavar="ROOT/DATASET[@VERSION]")
    parser.add_argument("--sample", metavar="ID", help="one sample, by its id or the beginning of it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(list(arguments))
    root, name, version = parse_reference(given.dataset)
    door = open_door(root)
    console = PlainConsole(TABLE_WIDTH)
    if given.sample is not None:
        sample = view_sample(door, name, version, given.sample)
        print(json.dumps(sample_data(sample))) if given.json else _print_sample(sample, console)  # noqa: T201
    else:
        view = view_dataset(door, name, version)
        print(json.dumps(dataset_data(view))) if given.json else _print_dataset(view, console)  # noqa: T201
    return 0


def dataset_data(view: DatasetView) -> dict[str, object]:
    """Return the view as JSON types."""
    version, schema = view.snapshot.version, view.snapshot.schema
    norm = view.snapshot.final_norm()
    return {
        "dataset": view.name,
        "version": version.model_dump(mode="json"),
        "schema": schema.model_dump(mode="json"),
        "schema_fingerprint": schema.fingerprint,
        "final_norm": None if norm is None else norm.recipe._asdict(),
        "derivable": derivable(schema, norm),
        "samples": version.n_samples,
        "tokens": version.n_tokens,
        "trained_tokens": view.n_trained,
        "shortest_median_longest": view.lengths,
        "size_bytes": version.size_bytes,
        "quarantined": dict(view.quarantined),
        "versions": [_version_data(shown) for shown in view.versions],
        "runs": [_run_data(start, end) for start, end in view.runs],
        "tensors": [_line_data(line) for line in view.lines],
        "samples_measured": view.n_measured,
        "audit": None if view.audit is None else _audit_data(view.audit),
        "calibrations": [record.model_dump(mode="json") for record in view.calibrations],
        "checks": [record.model_dump(mode="json") for record in view.checks],
    }


def _version_data(version: VersionRecord) -> dict[str, object]:
    return {
        "number": version.number,
        "operation": version.operation,
        "samples": version.n_samples,
        "created_at": version.created_at.isoformat(),
    }


def _run_data(start: RunStart, end: RunEnd | None) -> dict[str, object]:
    return {"start": start.model_dump(mode="json"), "end": end.model_dump(mode="json") if end else None}


def _audit_data(audit: AuditReading) -> dict[str, object]:
    return {
        "samples": audit.n_samples,
        "tokens": audit.n_tokens,
        "on_policy_rate": audit.on_policy,
        "on_policy_positions": audit.on_policy_positions,
        "lacking": list(audit.lacking),
    }


def sample_data(view: SampleView) -> dict[str, object]:
    """Return the view as JSON types."""
    return {**asdict(view), "lines": [_line_data(line) for line in view.lines]}


def _line_data(line: TensorLine) -> dict[str, object]:
    return {**line.spec.model_dump(mode="json"), **{k: v for k, v in asdict(line).items() if k != "spec"}}


def _print_dataset(view: DatasetView, console: Console) -> None:
    for word, text in _facts(view):
        console.print(f"{word:<12} {text}", markup=False)
    console.print()
    console.print(_norm_table(view.lines))
    console.print(
        f"[dim]L2 norms of tokens over {view.n_measured:,} samples; first and last: "
        "median over samples of their first and last token[/dim]"
    )


def _facts(view: DatasetView) -> Iterator[tuple[str, str]]:
    version, schema, target = view.snapshot.version, view.snapshot.schema, view.snapshot.schema.target
    low, middle, high = view.lengths
    yield "dataset", f"{view.name}@{version.number}, {human_bytes(version.size_bytes)}"
    yield (
        "samples",
        f"{version.n_samples:,}, {version.n_tokens:,} tokens ({view.n_trained:,} trained), "
        f"{low:,} to {high:,} tokens each, median {middle:,}",
    )
    shape = f"L={target.n_layers}, H={target.hidden_size}, vocabulary {target.vocab_size:,}"
    yield "target", f"{target.model_id}: {target.architecture}, {shape}"
    weights = f"weights {target.weights.sha256[:16]} ({target.weights.method})"
    quantisation = f"quantisation {target.quantisation or 'none'}"
    yield "", f"{weights}, {quantisation}, tokenizer {target.tokenizer_sha256[:16]}"
    yield "schema", schema.fingerprint
    if FINAL in schema.names:
        yield "final norm", _final_norm(view)
    for shown in view.versions:
        made = f"{shown.created_at:%Y-%m-%d %H:%M:%S} UTC, run {shown.run_id or 'none'}"
        yield "version", f"{shown.number}: {shown.operation}, {shown.n_samples:,} samples, {made}"
    for start, end in view.runs:
        fate = "no end recorded: running, or killed"
        if end is not None:
            fate = f"{end.outcome}, {end.n_samples:,} samples in {human_seconds(end.seconds)}"
        engine = f"{start.provenance.engine} ({start.provenance.engine_version}), {start.provenance.dtype}"
        yield "run", f"{start.run_id}: {fate}; {engine}; code {start.code_version}"
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(view.quarantined.items()))
    yield "quarantine", f"{sum(view.quarantined.values()):,}" + (f" ({reasons})" if reasons else "")
    for record in view.calibrations:
        yield "calibrated", f"run {record.run_id}, {in_words(record)}"
        untied = record.positions - record.tied
        if record.positions:
            yield (
                "",
                f"the head on `final` chose as the engine on {record.agreeing:,} of {untied:,} positions",
            )
    if view.audit is not None and view.audit.lacking:
        yield "audit set", f"without {', '.join(view.audit.lacking)}"
    for found in view.checks:
        if found.engine:
            yield "engine", f"run {found.run_id}: {in_a_line(found.engine)}"
        if found.proven_by:
            yield "proven", f"run {found.run_id}: {found.proven_by}"
        if found.n_bound or found.n_again or found.n_unbound:
            yield "bound", _bound(found)
    yield "on-policy", _on_policy(view)


def _final_norm(view: DatasetView) -> str:
    norm = view.snapshot.final_norm()
    if norm is None:
        return "not kept: `strata norm` keeps it, and final_normed is made of final from then on"
    stored = FINAL_NORMED in view.snapshot.schema.names
    return (
        f"{norm.recipe}: final_normed is {'stored too' if stored else 'made of final where it is asked for'}"
    )


def _bound(found: RunChecks) -> str:
    bound = found.n_bound + found.n_again
    again = f" ({found.n_again:,} by a second pass)" if found.n_again else ""
    looked_at = bound + found.n_unbound
    return f"{bound:,} of {looked_at:,} samples of run {found.run_id} to their ids{again}, {found.binding}"


def _on_policy(view: DatasetView) -> str:
    answered = sum(found.positions - found.tied for found in view.checks)
    if answered:
        agreeing, tied = (sum(getattr(one, name) for one in view.checks) for name in ("agreeing", "tied"))
        return (
            f"{agreeing / answered:.1%} of the target's own answers: its argmax is the stored token on so "
            f"many of {answered:,} trained positions ({tied:,} ties left out)"
        )
    audit = view.audit
    if audit is None:
        return "not known: made without an audit set"
    if audit.on_policy is None:
        return f"not known: no trained token in the {audit.n_samples} audit samples"
    return (
        f"{audit.on_policy:.1%}: the target's own argmax is the stored token on so many of "
        f"{audit.on_policy_positions:,} trained positions of {audit.n_samples} audit samples"
    )


def _print_sample(view: SampleView, console: Console) -> None:
    console.print(f"sample       {view.sample_id}")
    console.print(f"prompt       {view.prompt_id}")
    console.print(f"conversation {view.conversation_id}")
    console.print(f"source       {view.source}")
    console.print(f"part         {view.part_id}")
    console.print(f"tokens       {view.n_tokens:,} ({view.n_trained:,} trained)")
    console.print()
    console.print(_norm_table(view.lines))
    if view.text is not None:
        shown = view.text if len(view.text) <= TEXT_SHOWN else view.text[:TEXT_SHOWN] + " ..."
        console.print()
        console.print(shown, markup=False)


def _norm_table(lines: Sequence[TensorLine]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("tensor", "boundary", "norm", "dtype", "width", *FIGURES):
        table.add_column(title, justify="left" if title in ("tensor", "norm", "dtype") else "right")
    for line in lines:
        figures = [getattr(line, figure) for figure in FIGURES]
        table.add_row(
            line.spec.name,
            str(line.spec.boundary),
            line.spec.norm,
            line.spec.dtype,
            str(line.spec.width),
            *(f"{figure:,.4g}" if figure < 1e4 else f"{figure:,.0f}" for figure in figures),
        )
    return table
