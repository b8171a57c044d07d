"""Every error of the engines.

StrataError
 +-- EngineError                   an engine cannot do what it was asked to
      +-- OpeningError             it cannot be opened: model, device, dtype, structure, another target
      +-- BatchError               a batch was refused before anything ran
"""

from schemas.errors import StrataError


class EngineError(StrataError):
    """The root of the engines' errors."""


class OpeningError(EngineError):
    """An engine cannot be opened as its settings ask."""


class BatchError(EngineError):
    """A batch was refused: empty, with an empty sample, or with ids outside the vocabulary."""
