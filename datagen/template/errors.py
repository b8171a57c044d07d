"""Every error of rendering.

StrataError
 +-- TemplateError          the tokenizer cannot be loaded, or has no chat template
 +-- UnrenderableError      one conversation cannot be rendered, or where its answers stand cannot be proven
"""

from schemas.errors import StrataError


class TemplateError(StrataError):
    """The tokenizer cannot be loaded, or has no chat template."""


class UnrenderableError(StrataError):
    """One conversation cannot be rendered, or where its answers stand in it cannot be proven."""

    exit_code = 1
