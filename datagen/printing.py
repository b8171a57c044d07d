"""Standard output as a person reads it: tables that keep their width in a pipe."""

from rich.console import Console


def printable(text: str) -> str:
    """Return text that UTF-8 can write: what it has no bytes for, as half a surrogate pair, is escaped.

    >>> printable("a\\ud800")
    'a\\\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class PlainConsole(Console):
    """A console of results: no colours of its own choice, no folding, at least `width` columns wide."""

    def __init__(self, width: int) -> None:
        super().__init__(highlight=False, soft_wrap=True)
        self.width = max(width, self.width)

    def on_broken_pipe(self) -> None:
        """Let the command line handle it: rich would end the program here, with an exit code of its own."""
        raise BrokenPipeError
