"""Every error of reading prompts.

StrataError
 +-- PromptError        the sources cannot be read at all; `problems` names each
Exception
 +-- RefusedRecord      one record is not usable: becomes a `QuarantinedSample`, never leaves the package
"""

from schemas.errors import StrataError
from schemas.records import QuarantineReason


class PromptError(StrataError):
    """The prompts cannot be read: missing files, unknown formats, no records, no tokenizer."""


class RefusedRecord(Exception):  # noqa: N818 - a verdict on one record, not an error of the run
    """One record is not usable; reading goes on."""

    def __init__(self, reason: QuarantineReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason: QuarantineReason = reason
        self.detail = detail
