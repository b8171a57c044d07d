"""`strata run`: the main job."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from datagen.arguments import read_config_arguments
from datagen.checks.on_policy import greedy_problem
from datagen.driver.driver import RunSummary, run
from datagen.driver.loop import REFUSED_REASONS
from schemas.figures import human_bytes, human_seconds
from schemas.problem import Problem

PROG = "strata run"


def command(arguments: Sequence[str]) -> int:
    """Make hidden states: run the target over the prompts, and commit a dataset."""
    given = read_config_arguments(PROG, command.__doc__ or "", arguments)
    summary = run(given.config)
    generate = given.config.generate
    greedy = generate is not None and generate.temperature == 0
    problems = problems_of(summary, given.config.output.max_quarantined_share, greedy=greedy)
    if given.as_json:
        told = [problem.model_dump(mode="json") for problem in problems]
        facts = {**asdict(summary), "on_policy": summary.on_policy_counts.rate, "problems": told}
        print(json.dumps(facts))  # noqa: T201
    else:
        print(in_words(summary, problems, arguments))  # noqa: T201
    return int(bool(problems))


def problems_of(summary: RunSummary, allowed: float, *, greedy: bool = False) -> list[Problem]:
    """Return why the run ends with exit code 1; `allowed` is the share that may be quarantined.

    `greedy` says that the target answered at temperature 0: then its argmax must say the same again.
    """
    problems = []
    if summary.outcome != "complete":
        message = f"expected every prompt to be made, got {summary.outcome} before that"
        problems.append(Problem(where="run", kind=summary.outcome, message=message))
    for reason in sorted(REFUSED_REASONS & set(summary.quarantined)):
        message = f"expected content as asked for, got {summary.quarantined[reason]:,} samples refused"
        problems.append(Problem(where=reason, kind="refused", message=message))
    if greedy and (problem := greedy_problem(summary.on_policy_counts)) is not None:
        problems.append(problem)
    # An answer that was given before is no loss; and a prompt may be asked for several.
    lost = summary.n_quarantined - summary.quarantined.get("duplicate_answer", 0)
    share = lost / max(1, summary.prompts_read, summary.n_samples + summary.n_quarantined)
    if share > allowed:
        message = f"expected at most {allowed:.2%} of the prompts quarantined, got {share:.2%}"
        repair = "look at the reasons above; allow more with output.max_quarantined_share"
        problems.append(Problem(where="quarantine", kind="share", message=message, repair=repair))
    return problems


def in_words(summary: RunSummary, problems: Sequence[Problem], arguments: Sequence[str]) -> str:
    """Return what a person reads at the end of a run."""
    where = f"{summary.dataset}@{summary.version}" if summary.version else summary.dataset
    lines = []
    if summary.outcome == "complete" and not summary.n_samples and not summary.n_quarantined:
        lines.append(f"{where}: nothing to do, all {summary.already_made:,} samples were made before")
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
    if summary.already_quarantined:
        lines.append(f"  known         {summary.already_quarantined:,} prompts were quarantined before")
    if summary.quarantined:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(summary.quarantined.items()))
        lines.append(f"  quarantined   {summary.n_quarantined:,} ({reasons})")
    if summary.n_samples:
        lines += _checked(summary)
    lines += [f"  problem       {problem}" for problem in problems if problem.kind != "interrupted"]
    if summary.outcome == "interrupted":
        lines.append(f"  to go on      {PROG} {shlex.join(arguments)}")
    return "\n".join(lines)


def _checked(summary: RunSummary) -> Iterator[str]:
    looked_at = summary.bound + summary.unbound
    yield f"  bound         {summary.bound:,} of {looked_at:,} samples to their token ids, {summary.binding}"
    found = summary.on_policy_counts
    if found.rate is not None:
        where = f"{found.positions - found.tied:,} positions of its own answers"
        yield f"  on-policy     {found.rate:.1%} of {where} ({found.tied:,} ties left out)"
