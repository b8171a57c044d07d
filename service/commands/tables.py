"""Answers of management in words: plain columns that keep their width in a pipe."""

from collections.abc import Iterable, Iterator, Sequence

from schemas.figures import human_bytes
from service.served.changes import (
    Changed,
    Collected,
    Comparison,
    DropChanged,
    Listed,
    Named,
    NameList,
    RollbackChanged,
    ShareFound,
    SplitChanged,
    VersionFacts,
)

LISTED = 20
"""Parts named on the console, of a step of garbage collection."""


def columns(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows under a heading; a column of figures goes to the right.

    >>> print(columns(("split", "samples"), [("train", "1,203"), ("validation", "97")]))
    split       samples
    train         1,203
    validation       97
    """
    lines = [tuple(heading), *(tuple(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heading))]
    right = [all(line[at][:1].isdigit() or not line[at] for line in lines[1:]) for at in range(len(heading))]
    padded = (
        [
            text.rjust(width) if figures else text.ljust(width)
            for text, width, figures in zip(line, widths, right, strict=True)
        ]
        for line in lines
    )
    return "\n".join("  ".join(line).rstrip() for line in padded)


def of_versions(versions: Iterable[VersionFacts]) -> str:
    """Return a line a version."""
    heading = (
        "version",
        "made by",
        "at (UTC)",
        "samples",
        "tokens",
        "bytes",
        "quarantined",
        "splits",
        "names",
    )
    return columns(
        heading,
        (
            (
                str(facts.number),
                facts.operation,
                f"{facts.created_at:%Y-%m-%d %H:%M:%S}",
                f"{facts.n_samples:,}",
                f"{facts.n_tokens:,}",
                human_bytes(facts.size_bytes),
                f"{facts.n_quarantined:,}",
                " ".join(name for rule in facts.splits for name, _ in rule.fractions) or "-",
                " ".join(facts.names) + (" (condemned)" if facts.n_condemned_parts else ""),
            )
            for facts in versions
        ),
    )


def of_version(dataset: str, facts: VersionFacts, shares: Sequence[tuple[str, Sequence[ShareFound]]]) -> str:
    """Return what a version holds, and what falls in each split of each of its rules."""
    lines = [
        f"version      {dataset}@{facts.number}: {facts.operation}, {facts.created_at:%Y-%m-%d %H:%M:%S} UTC",
        f"samples      {facts.n_samples:,}, {facts.n_tokens:,} tokens, {human_bytes(facts.size_bytes)}",
        f"quarantine   {facts.n_quarantined:,}",
        f"schema       {facts.schema_fingerprint}",
        f"run          {facts.run_id or 'none'}",
        f"names        {', '.join(facts.names) or 'none'}",
    ]
    if facts.n_condemned_parts:
        lines.append(f"condemned    {facts.n_condemned_parts:,} parts: their bytes may be gone")
    for rule, found in shares:
        lines += ["", f"rule {rule}", of_shares(found)]
    return "\n".join(lines)


def of_shares(shares: Sequence[ShareFound]) -> str:
    """Return a line a split; what falls in none is left out where nothing does."""
    shown = [share for share in shares if share.split is not None or share.n_samples]
    return columns(
        ("split", "samples", "tokens", "conversations"),
        (
            (
                share.split or "(none)",
                f"{share.n_samples:,}",
                f"{share.n_tokens:,}",
                f"{share.n_conversations:,}",
            )
            for share in shown
        ),
    )


def of_split(found: SplitChanged) -> str:
    """Return what a split rule came to."""
    head = _changed(found, f"rule {found.rule.name}, seed {found.rule.seed}", "it has this rule already")
    return f"{head}\n{of_shares(found.shares)}"


def of_drop(found: DropChanged) -> str:
    """Return what a drop came to."""
    what = f"{found.n_dropped:,} samples of {found.n_dropped_tokens:,} tokens dropped"
    gone = f"; {found.n_gone_before:,} were gone before" if found.n_gone_before else ""
    return _changed(found, what, "it has no such samples") + gone


def of_rollback(found: RollbackChanged) -> str:
    """Return what a rollback came to."""
    return _changed(found, f"lists what version {found.to_version} lists", "it lists those samples already")


def of_name(found: Named) -> str:
    """Return what naming a version came to."""
    return (
        f"{found.dataset}@{found.version} "
        + ("is named" if found.changed else "has the name")
        + f" {found.name}"
    )


def of_names(found: NameList) -> str:
    """Return a line a name."""
    rows = (
        (named.name, str(named.version), f"{named.named_at:%Y-%m-%d %H:%M}", named.digest)
        for named in found.names
    )
    return columns(("name", "version", "since (UTC)", "digest"), rows)


def of_collected(found: Collected) -> str:
    """Return what a step of garbage collection took, or would take."""
    doing = {"condemn": "condemned", "sweep": "removed"}[found.step]
    would = "would be " if found.dry_run else ""
    what = f"{len(found.parts):,} parts, {human_bytes(found.size_bytes)}, {would}{doing}"
    told = what if found.changed else f"nothing to {found.step}"
    lines = [f"{found.dataset}@{found.version}: {told}"]
    lines += [f"  parts/{part}" for part in found.parts[:LISTED]]
    if len(found.parts) > LISTED:
        lines.append(f"  and {len(found.parts) - LISTED:,} more (all with --json)")
    lines += [f"  {key}" for key in found.litter]
    lines += [f"  left: {problem}" for problem in found.left]
    return "\n".join(lines)


def of_comparison(found: Comparison) -> str:
    """Return how two versions differ."""
    first, second = found.first, found.second
    remade = f", {found.n_remade:,} of them made again" if found.n_remade else ""
    lines = [
        of_versions([first, second]),
        "",
        f"kept         {found.n_kept:,} samples{remade}",
        *_listed("removed", found.removed),
        *_listed("added", found.added),
        f"schema       {'the same' if found.same_schema else 'another'}",
        f"splits       {'the same' if found.same_splits else 'others'}",
        f"runs         {', '.join(found.runs) or 'none between'}",
    ]
    reasons = ", ".join(f"{reason} {count:+,}" for reason, count in found.quarantined.items())
    return "\n".join([*lines, f"quarantine   {reasons or 'the same'}"])


def _listed(word: str, found: Listed) -> Iterator[str]:
    yield f"{word:<12} {found.n_samples:,} samples, {found.n_tokens:,} tokens"
    yield from (f"  {sample_id}" for sample_id in found.sample_ids)
    if found.next_cursor is not None:
        yield f"  more with --{word}-cursor {found.next_cursor}"


def _changed(found: Changed, what: str, already: str) -> str:
    """Return a change in a line: the version it made, would make, or why it made none."""
    if not found.changed:
        return f"{found.dataset}@{found.version}: nothing to do, {already}"
    held = f"{found.n_samples:,} samples, {found.n_tokens:,} tokens"
    if found.dry_run:
        return f"{found.dataset}@{found.version} would be changed: {what} (it has {held})"
    return f"{found.dataset}@{found.version}: {what}; {held}, {human_bytes(found.size_bytes)}"
