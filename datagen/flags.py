"""Flags and environment variables before they are settings: what cannot be one is told by its own name.

The library that reads settings stops at the first word that it cannot parse; here all of them are found.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from schemas.problem import Problem

ENV_PREFIX = "STRATA_"
ENV_DELIMITER = "__"


class Flag(NamedTuple):
    """A flag as it was given, with its one value."""

    name: str
    value: str


def read_flags(words: Sequence[str], known: Collection[str]) -> tuple[list[Flag], list[Problem]]:
    """Return the flags among `words` that are settings, and a problem for each other word.

    >>> flags, problems = read_flags(["--ray.address", "auto", "here", "--ray.addres=auto"], ["ray.address"])
    >>> flags
    [Flag(name='ray.address', value='auto')]
    >>> [str(problem) for problem in problems]  # doctest: +NORMALIZE_WHITESPACE
    ['here: expected a flag, got a word that belongs to none (quote a value that has spaces)',
     '--ray.addres: expected a setting, got an unknown flag (did you mean --ray.address)']
    """
    flags: list[Flag] = []
    problems: list[Problem] = []
    for group in _groups(words):
        name, equals, value = group[0].partition("=")
        values = [value, *group[1:]] if equals else group[1:]
        if not name.startswith("--") or name == "--":
            problems += map(_stray, group)
            continue
        if name[2:] not in known:
            problems.append(_unknown(name, known))
            continue
        if not values:
            problems.append(Problem(where=name, kind="flag", message="expected a value, got none"))
        else:
            flags.append(Flag(name[2:], values[0]))
        problems += map(_stray, values[1:])
    return flags, problems


def _groups(words: Sequence[str]) -> list[list[str]]:
    """Return each flag with the words that follow it; words before the first flag are groups of their own."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups or not groups[-1][0].startswith("--"):
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _stray(word: str) -> Problem:
    return Problem(
        where=word,
        kind="flag",
        message="expected a flag, got a word that belongs to none",
        repair="quote a value that has spaces",
    )


def _unknown(flag: str, known: Collection[str]) -> Problem:
    near = difflib.get_close_matches(flag[2:], known, n=1)
    inside = sorted(name for name in known if name.startswith(f"{flag[2:]}."))
    if inside:
        repair = f"give its settings one by one: --{inside[0]} VALUE ..."
    else:
        repair = f"did you mean --{near[0]}" if near else "`--help` lists the settings"
    return Problem(where=flag, kind="flag", message="expected a setting, got an unknown flag", repair=repair)


def misspelt_variables(environment: Mapping[str, str], known: Collection[str]) -> list[Problem]:
    """Return a problem for each variable that looks like one of a setting, in a section that is not there.

    A wrong key of a known section is found where the section is read; what looks like none of the sections
    is another program's.

    >>> problems = misspelt_variables({"STRATA_ENGIN__MODEL": "m", "STRATA_X__Y": "1"}, ["engine.model"])
    >>> [str(problem) for problem in problems]  # doctest: +NORMALIZE_WHITESPACE
    ['STRATA_ENGIN__MODEL: expected a setting, got a variable of the unknown section engin
      (did you mean STRATA_ENGINE__MODEL)']
    """
    sections = {name.partition(".")[0] for name in known}
    problems = []
    for variable in sorted(environment):
        section, delimiter, key = variable.removeprefix(ENV_PREFIX).lower().partition(ENV_DELIMITER)
        near = difflib.get_close_matches(section, sections, n=1, cutoff=0.75)
        if not variable.startswith(ENV_PREFIX) or not delimiter or section in sections or not near:
            continue
        repair = f"did you mean {ENV_PREFIX}{near[0].upper()}{ENV_DELIMITER}{key.upper()}"
        message = f"expected a setting, got a variable of the unknown section {section}"
        problems.append(Problem(where=variable, kind="variable", message=message, repair=repair))
    return problems


def by_setting(problems: Sequence[Problem], known: Collection[str]) -> list[Problem]:
    """Return the problems, one a setting: a setting of several types is refused once for each of them.

    >>> same = {"kind": "type", "message": "expected an integer, got 'x'"}
    >>> other = {"kind": "literal", "message": "expected 'auto', got 'x'"}
    >>> problems = [Problem(where="a.b.int", **same), Problem(where="a.b.literal['auto']", **other)]
    >>> [str(problem) for problem in by_setting(problems, ["a.b"])]
    ["a.b: expected an integer or 'auto', got 'x'"]
    """
    grouped: dict[str, list[Problem]] = {}
    for problem in problems:
        owner = next((name for name in known if problem.where.startswith(f"{name}.")), problem.where)
        grouped.setdefault(owner, []).append(problem)
    return [_merged(owner, found) for owner, found in grouped.items()]


def _merged(where: str, found: Sequence[Problem]) -> Problem:
    """Return one problem of what was expected by any of `found`; of one field, what was given is the same."""
    told = [re.sub(r", unable to parse .*?(?=, got )", "", problem.message) for problem in found]
    expected = list(dict.fromkeys(message.rpartition(", got ")[0] or message for message in told))
    got = told[0].rpartition(", got ")[2] if ", got " in told[0] else None
    message = " or ".join([expected[0], *(words.removeprefix("expected ") for words in expected[1:])])
    return found[0].model_copy(
        update={"where": where, "message": message if got is None else f"{message}, got {got}"}
    )
