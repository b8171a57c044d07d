"""What no declaration says of a release or a model, and so is assumed: told in the log, each once."""

import logging
from collections.abc import Callable, Iterable

LOG = logging.getLogger(__name__)


def teller(engine: str) -> Callable[[Iterable[str]], None]:
    """Return what tells the assumptions that it was not given before."""
    told: set[str] = set()

    def tell(assumed: Iterable[str]) -> None:
        for one in assumed:
            if one not in told:
                LOG.warning("engine %s: %s", engine, one)
                told.add(one)

    return tell


def in_words(assumed: Iterable[str]) -> str:
    """Return assumptions as an engine says them of itself.

    >>> in_words(("a", "b")), in_words(())
    ('a; b', 'nothing')
    """
    return "; ".join(assumed) or "nothing"
