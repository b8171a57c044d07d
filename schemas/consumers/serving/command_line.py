"""A serving command line, cut into flags and their values as argparse would; the rest is passed over."""

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from schemas.problem import Problem

MAX_CHARACTERS = 131_072
"""The longest single argument that Linux passes to a program; a longer command line is none."""


class Flag(NamedTuple):
    """One flag as it was written; `value` is `None` where none follows."""

    name: str
    value: str | None


def tokens_of(args: str | Sequence[str]) -> list[str] | Problem:
    """Return the words of a command line, given whole or in words."""
    n_characters = len(args) if isinstance(args, str) else sum(len(word) + 1 for word in args)
    if n_characters > MAX_CHARACTERS:
        message = f"expected at most {MAX_CHARACTERS} characters, got {n_characters}: no shell passes them on"
        repair = "give the command line that starts the server"
        return Problem(where="server args", kind="too_long", message=message, repair=repair)
    if not isinstance(args, str):
        return list(args)
    try:
        return shlex.split(args)
    except ValueError as error:
        return Problem(
            where="server args",
            kind="quotes",
            message=f"expected a command line that a shell can split, got one with {str(error).lower()}",
            repair="close the quote; JSON goes between single quotes",
        )


def flags_of(words: Sequence[str]) -> Iterator[Flag]:
    """Yield the flags in order.

    >>> list(flags_of(["serve", "--a=1", "--b", "2", "--c", "--d", "-1"]))[1:]
    [Flag(name='--b', value='2'), Flag(name='--c', value=None), Flag(name='--d', value='-1')]
    """
    for place, word in enumerate(words):
        if not _is_flag(word):
            continue
        name, found, value = word.partition("=")
        following = words[place + 1] if place + 1 < len(words) else None
        if found:
            yield Flag(name, value)
        else:
            yield Flag(name, following if following is not None and not _is_flag(following) else None)


def _is_flag(word: str) -> bool:
    return (word.startswith("--") and len(word) > 2) or word == "-sc" or word.startswith("-sc=")
