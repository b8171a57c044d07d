"""Every error of the pure core, and the root of all of Strata's errors.

    StrataError                     a headline, all problems, exit code 2 unless said otherwise
     +-- RecordError                a file or a response is not the record it should be
     +-- SchemaError                tensors or tokens depart from the schema
     +-- DatasetNameError           `ROOT/DATASET[@VERSION]` is not written that way

`datagen.store.errors` and `datagen.errors` go on from here.
"""

from collections.abc import Sequence

from schemas.problem import Problem, listed


class StrataError(Exception):
    """An error with a headline and every problem that was found.

    `exit_code` is what a command ends with: 1 problems were found in what was asked about, 2 could not try.
    """

    exit_code = 2

    def __init__(self, headline: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(headline, tuple(problems))
        self.headline = headline
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return self.headline + listed(self.problems)


class RecordError(StrataError):
    """A file or a response is not the record it should be."""


class SchemaError(StrataError):
    """Tensors or tokens depart from the schema; `problems` names each departure."""

    exit_code = 1


class DatasetNameError(StrataError):
    """A dataset reference is not written `ROOT/DATASET[@VERSION]`."""
