"""`strata run`, the same as `python -m datagen.run`: the main job."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from datagen.arguments import read_config_arguments
from datagen.cli import guarded
from datagen.driver import RunSummary, run
from datagen.loop import REFUSED_REASONS
from datagen.progress import human_bytes, human_seconds

PROG = "strata run"


def command(arguments: Sequence[str]) -> int:
    """Make hidden states: run the target over the prompts, and commit a dataset."""
    given = read_config_arguments(PROG, command.__doc__ or "", arguments)
    summary = run(given.config)
    share = summary.n_quarantined / max(1, summary.prompts_read)
    code = exit_code(summary, share, given.config.output.max_quarantined_share)
    print(json.dumps(asdict(summary)) if given.as_json else in_words(summary, arguments))  # noqa: T201
    return code


def exit_code(summary: RunSummary, share: float, allowed: float) -> int:
    """Return 1 when the run was interrupted, content was refused, or more was quarantined than is allowed."""
    refused = any(reason in REFUSED_REASONS for reason in summary.quarantined)
    return int(summary.outcome != "complete" or refused or share > allowed)


def in_words(summary: RunSummary, arguments: Sequence[str]) -> str:
    """Return what a person reads at the end of a run."""
    where = f"{summary.dataset}@{summary.version}" if summary.version else summary.dataset
    lines = []
    if summary.outcome == "complete" and not summary.n_samples and not summary.n_quarantined:
        lines.append(f"{where}: nothing to do, all {summary.already_made:,} prompts were made before")
    else:
        rate = summary.n_tokens / summary.making_seconds if summary.making_seconds else 0.0
        lines.append(
            f"{where}: {summary.outcome}, {summary.n_samples:,} samples, {summary.n_tokens:,} tokens, "
            f"{human_bytes(summary.size_bytes)} in {human_seconds(summary.making_seconds)} "
            f"({rate:,.0f} tokens/s)"
        )
    if summary.already_made and summary.n_samples:
        lines.append(f"  made before   {summary.already_made:,}")
    if summary.duplicates:
        lines.append(
            f"  duplicates    {summary.duplicates:,} prompts ask for the same tokens and were made once"
        )
    if summary.quarantined:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(summary.quarantined.items()))
        lines.append(f"  quarantined   {summary.n_quarantined:,} ({reasons})")
    if summary.outcome == "interrupted":
        lines.append(f"  to go on      {PROG} {' '.join(arguments)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(guarded(command, sys.argv[1:]))
