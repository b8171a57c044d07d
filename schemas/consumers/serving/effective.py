"""From a command line to what will run: which server reads it, at which version, and what was assumed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from schemas.consumers.serving.command_line import tokens_of
from schemas.consumers.serving.flags import ServingFlags
from schemas.consumers.serving.rules import rules
from schemas.consumers.serving.server_args import read_server_args
from schemas.consumers.serving.speculative_config import read_speculative_config
from schemas.consumers.serving.target import ServedTarget
from schemas.consumers.versions import release_of
from schemas.problem import Problem


class _Server(NamedTuple):
    title: str
    first: str
    last: str
    read: Callable[[str, Sequence[str], ServedTarget], ServingFlags]


def _servers() -> dict[str, _Server]:
    sglang, vllm = rules().sglang, rules().vllm
    return {
        "sglang": _Server("SGLang", sglang.first, sglang.last, read_server_args),
        "vllm": _Server("vLLM", vllm.first, vllm.last, read_speculative_config),
    }


def effective_flags(
    server: str,
    version: str | None,
    args: str | Sequence[str],
    architecture: str | None = None,
    model_type: str | None = None,
) -> ServingFlags:
    """Return what a server at a version runs when started with `args`, and every problem on the way.

    `architecture` and `model_type` are the target's (`architectures[0]` and `model_type` of its config.json):
    SGLang chooses numbers by them where none are given. Flags of other matters are passed over.

    >>> args = "--speculative-algorithm EAGLE3 --speculative-num-steps 1 --speculative-eagle-topk 1"
    >>> flags = effective_flags("sglang", "0.5.23", args + " --speculative-num-draft-tokens 16")
    >>> flags.draft_tokens, flags.problems[0].kind
    (2, 'overridden')
    """
    name = server.strip().lower()
    known = _servers().get(name)
    if known is None:
        message = f"expected one of {', '.join(_servers())}, got {server[:80]!r}: its flags are not known"
        problem = Problem(where="server", kind="unknown_server", severity="note", message=message)
        return ServingFlags(server=server[:80], problems=(problem,))
    words = tokens_of(args)
    assumed = _assumed(known, version)
    wrong = [problem for problem in (words, *assumed) if isinstance(problem, Problem)]
    if isinstance(words, Problem) or any(problem.severity == "error" for problem in assumed):
        return ServingFlags(server=name, problems=tuple(wrong))
    read = known.read(version or known.last, words, ServedTarget(architecture, model_type))
    return read.model_copy(update={"problems": (*assumed, *read.problems)})


def _assumed(server: _Server, version: str | None) -> list[Problem]:
    if version is None:
        message = f"no version of {server.title} given: flags are read as {server.last} reads them"
        return [Problem(where="server", kind="assumed", severity="note", message=message)]
    try:
        release = release_of(version)
    except ValueError as error:
        repair = f"write it as {server.last}"
        return [Problem(where="server", kind="version", message=str(error)[:200], repair=repair)]
    if release < release_of(server.first):
        message = f"expected {server.title} {server.first} or later, got {version}: its flags were not read"
        repair = f"check flags for a version from {server.first} to {server.last}"
        return [Problem(where="server", kind="version", message=message, repair=repair)]
    if release > release_of(server.last):
        message = f"{server.title} {version} is newer than {server.last}, the last one read: taken as it"
        return [Problem(where="server", kind="assumed", severity="note", message=message)]
    return []
