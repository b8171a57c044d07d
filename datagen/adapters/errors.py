"""The error of somebody else's file: what is wrong with it, by name."""

from schemas.errors import StrataError


class ForeignFileError(StrataError):
    """A file of another library's cannot be read as hidden states; `problems` says why."""

    exit_code = 1
