"""The rules by which servers read their flags, as records of `rules.toml`."""

import tomllib
from functools import cache
from importlib.resources import files

from schemas.consumers.versions import in_range
from schemas.record import Record


class Auto(Record):
    """What SGLang chooses where no steps are given: steps, topk and draft tokens."""

    versions: str
    architectures: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    chosen: tuple[int, int, int]


class PagesOfTrees(Record):
    """The attention backends that verify a tree over pages of more than one token."""

    versions: str
    backends: tuple[str, ...]


class AdaptiveCandidates(Record):
    """The numbers of steps among which adaptive drafting chooses by default."""

    versions: str
    steps: tuple[int, ...]


class ServerArgsRules(Record):
    """SGLang's rules."""

    first: str
    last: str
    eagle: tuple[str, ...]
    others: dict[str, str]
    any_case: str
    chain_is_steps_plus_one: str
    pages_need_topk_one: str
    topk_is_compared: str
    trtllm_mha_needs_topk_one: str
    adaptive: str
    adaptive_default_steps: int
    pages_of_trees: tuple[PagesOfTrees, ...]
    adaptive_candidates: tuple[AdaptiveCandidates, ...]
    auto: tuple[Auto, ...]
    flags: dict[str, str]

    def chosen(
        self, version: str, architecture: str | None, model_type: str | None
    ) -> tuple[int, int, int] | None:
        """Return the triple chosen for a target; `None` where it depends on a target that is not known."""
        possible = []
        for line in self.auto:
            if not in_range(version, line.versions):
                continue
            named = architecture in line.architectures or (
                architecture is None and model_type in line.model_types
            )
            if named or (architecture is None and model_type is None) or not line.architectures:
                possible.append(line.chosen)
            if named or not line.architectures:
                break
        return possible[0] if len(set(possible)) == 1 else None


class SpeculativeConfigRules(Record):
    """vLLM's rules."""

    first: str
    last: str
    method_from_path: str
    may_lack_tokens: tuple[str, ...]
    flags: dict[str, str]
    keys: dict[str, str]


class Rules(Record):
    """Both servers' rules."""

    sglang: ServerArgsRules
    vllm: SpeculativeConfigRules


@cache
def rules() -> Rules:
    """Return the rules of the package."""
    text = files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    return Rules.model_validate(tomllib.loads(text))
