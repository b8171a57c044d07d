"""Standard output as a person reads it: tables that keep their width in a pipe."""

from rich.console import Console


class PlainConsole(Console):
    """A console of results: no colours of its own choice, no folding, at least `width` columns wide."""

    def __init__(self, width: int) -> None:
        super().__init__(highlight=False, soft_wrap=True)
        self.width = max(width, self.width)

    def on_broken_pipe(self) -> None:
        """Let the command line handle it: rich would end the program here, with an exit code of its own."""
        raise BrokenPipeError
