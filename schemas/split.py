"""Splits: which samples are for training and which are held out, by a rule and nothing else.

A sample's split is a hash of its *conversation*, so pieces of one conversation never straddle, and a sample
keeps its split whatever is committed, dropped or repacked later.
"""

import hashlib
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate

from schemas.problem import Problem
from schemas.records import SplitRule

_TOP = 2**64


def split_of(rule: SplitRule, conversation_id: str) -> str | None:
    """Return the split that a conversation is in, or `None` where the fractions leave it out.

    The first 8 bytes, big-endian, of sha256 over `strata.split.v1`, the rule's name, its seed in decimal and
    the conversation id, each pair parted by a zero byte, fall into the fractions' running sums of 2**64.

    >>> rule = SplitRule(name="holdout", seed=0, fractions=(("train", 0.9), ("validation", 0.1)))
    >>> [split_of(rule, f"conversation-{i}") for i in range(4)]
    ['train', 'train', 'train', 'train']
    """
    place = split_place(rule, conversation_id)
    for (name, _), end in zip(rule.fractions, split_ends(rule), strict=True):
        if place < end:
            return name
    return None


def split_place(rule: SplitRule, conversation_id: str) -> int:
    """Return where a conversation falls between 0 and 2**64."""
    said = "\0".join(("strata.split.v1", rule.name, str(rule.seed), conversation_id))
    return int.from_bytes(hashlib.sha256(said.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def split_ends(rule: SplitRule) -> tuple[int, ...]:
    """Return the end of each split between 0 and 2**64; fractions go as they are written in decimal."""
    shares = accumulate(Fraction(repr(share)) for _, share in rule.fractions)
    return tuple(int(share * _TOP) for share in shares)


def rule_problems(rules: Iterable[SplitRule]) -> list[Problem]:
    """Return what is wrong with split rules: shares beyond 0 to 1, or a name that two splits would share."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for rule in rules:
        if not rule.fractions:
            message = "expected at least one split with its share, got none"
            problems.append(Problem(where=f"splits.{rule.name}", kind="empty", message=message))
        for name, share in rule.fractions:
            where = f"splits.{rule.name}.{name}"
            if not 0 < share <= 1:
                message = f"expected a share above 0 and at most 1, got {share}"
                problems.append(Problem(where=where, kind="share", message=message))
            if name in seen:
                message = f"expected a name of its own, got one that {seen[name]} has too"
                problems.append(Problem(where=where, kind="name", message=message, repair="rename one"))
            seen.setdefault(name, where)
        total = sum(Fraction(repr(share)) for _, share in rule.fractions)
        if total > 1:
            message = f"expected shares of at most 1 in all, got {float(total):g}"
            problems.append(Problem(where=f"splits.{rule.name}", kind="share", message=message))
    return problems
