"""What is wrong, as data: a check returns `Problem`s, one error carries them all.

Problems travel unchanged from the check to the terminal, to `--json` and to the service's responses.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["error", "note"]


class Problem(BaseModel):
    """One thing that is wrong: `where` names the thing, `message` says *expected X, got Y*.

    A severity of `note` is a legitimate difference that a person should know of; it fails nothing. `repair`
    says what to write, and where. What is wrong with a wiring says again, apart from the message, its `role`
    (`fc` or `target`), its `slot` (counted from 0) and the tensors that were `expected` and `got`.

    >>> str(Problem(where="layer3", kind="dtype", message="expected bfloat16, got float32"))
    'layer3: expected bfloat16, got float32'
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: str
    kind: str
    message: str
    severity: Severity = "error"
    repair: str | None = None
    role: Literal["fc", "target"] | None = None
    slot: int | None = None
    expected: str | None = None
    got: str | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f" ({self.repair})" if self.repair else "")


def listed(problems: Iterable[Problem]) -> str:
    """Return the problems a line each, indented, as they stand under an error's headline."""
    return "".join(f"\n  {problem}" for problem in problems)
